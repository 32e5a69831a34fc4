import { MillraceError } from '../errors/index.ts'
import { withAbort } from '../kit/index.ts'
import type { AttemptResult, Executor, GroupJob, GroupScores, RolloutJob } from '../rollout/index.ts'
import { type WorkerPoolOptions, WorkerSupervisor } from './supervisor.ts'
import type { Call, PoolWorker, WorkerDeath } from './worker.ts'
import { Quarantine } from './quarantine.ts'
import type { WorkerResult, WorkerRequest } from './channel/channel.ts'

interface Answered<Value extends WorkerResult> {
  readonly kind: 'answered'
  readonly value: Value
}

type Lost = Extract<AttemptResult, { kind: 'lost' }>

/**
 * Runs rollouts on several threads or processes. A rollout that was lost with its worker is answered as lost, with a decision on
 * what to do with it. No queue grows here: there is one call per rollout that the scheduler has admitted.
 */
export class WorkerPool extends WorkerSupervisor implements Executor {
  readonly #quarantine = new Quarantine()

  /** Rejects if one of the workers cannot load the environment. */
  static async start(options: WorkerPoolOptions): Promise<WorkerPool> {
    const pool = new WorkerPool(options)
    await pool.startWorkers()
    return pool
  }

  protected onDeath(death: WorkerDeath): void {
    this.#quarantine.noteDeath(death)
  }

  async run(job: RolloutJob, signal: AbortSignal): Promise<AttemptResult> {
    const call = { key: job.id, task: job.task.index, signal }
    const answer = await this.#run<AttemptResult>({ kind: 'run', job }, call)
    return answer.kind === 'lost' ? answer : answer.value
  }

  /** A group reward can kill a worker as well as a rollout can, and is treated like one. */
  async scoreGroup(job: GroupJob, signal: AbortSignal): Promise<GroupScores> {
    const call = { key: `group ${job.task.index}`, task: job.task.index, signal }
    return await this.#untilAnswered<GroupScores>({ kind: 'score-group', job }, call)
  }

  async preflight(signal: AbortSignal): Promise<readonly string[]> {
    return await this.#untilAnswered<readonly string[]>({ kind: 'preflight' }, { key: 'preflight', signal })
  }

  async #untilAnswered<Value extends WorkerResult>(request: WorkerRequest, call: Call): Promise<Value> {
    for (;;) {
      const answer = await this.#run<Value>(request, call)
      if (answer.kind === 'answered') return answer.value
      if (answer.disposition !== 'again') throw new MillraceError('worker_lost', answer.why)
    }
  }

  async #run<Value extends WorkerResult>(request: WorkerRequest, call: Call): Promise<Answered<Value> | Lost> {
    let comesAgain = false
    try {
      const answer = await this.#attempt<Value>(request, call)
      comesAgain = answer.kind === 'lost' && answer.disposition === 'again'
      return answer
    } finally {
      if (!comesAgain) this.#quarantine.forget(call.key)
    }
  }

  /** Finds a worker, waiting until there is one, and asks it. A suspect goes to the worker of its cohort. */
  async #attempt<Value extends WorkerResult>(request: WorkerRequest, call: Call): Promise<Answered<Value> | Lost> {
    for (;;) {
      this.throwIfUnable()
      call.signal.throwIfAborted()
      const cohort = this.#quarantine.cohortOf(call.key)
      if (cohort === undefined) {
        const worker = this.choose(call.task)
        if (worker) return await this.#ask<Value>(worker, request, call)
      } else {
        const isolated = this.takeIsolated(cohort)
        if (isolated) {
          try {
            const worker = await withAbort(isolated.worker, call.signal)
            if (!worker.isGone) return await this.#ask<Value>(worker, request, call)
            continue
          } finally {
            this.giveBackIsolated(isolated)
          }
        }
      }
      await withAbort(this.changed, call.signal)
    }
  }

  async #ask<Value extends WorkerResult>(
    worker: PoolWorker,
    request: WorkerRequest,
    call: Call,
  ): Promise<Answered<Value> | Lost> {
    try {
      const value = await worker.ask<Value>(request, call)
      this.noteEnd()
      return { kind: 'answered', value }
    } catch (error) {
      const { death } = worker
      if (!death || error !== death) throw error
      const { losses, disposition } = this.#quarantine.lossOf(call.key)
      const history = disposition === 'again' ? '' : `${losses} workers were lost while they ran this; the last one: `
      return { kind: 'lost', disposition, why: `${history}${death.rawMessage}` }
    }
  }
}
