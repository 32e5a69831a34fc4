import { setImmediate as nextTurn } from 'node:timers/promises'
import { MillraceError } from '../errors/index.ts'
import type { ModelStatus } from '../inference/index.ts'
import { raced, Resource } from '../kit/index.ts'
import type {
  AttemptResult,
  Executor,
  GroupJob,
  GroupScores,
  OffloadStatus,
  RolloutJob,
  WorkerStatus,
} from '../rollout/index.ts'
import type { ToolServerStatus } from '../tools/index.ts'
import { WorkerSupervisor, type WorkerSupervisorOptions } from './worker-supervisor.ts'
import type { Call, PoolWorker } from './pool-worker.ts'
import { Quarantine } from './quarantine.ts'
import type { WorkerResult, WorkerRequest } from './worker-messages.ts'

export type WorkerPoolOptions = WorkerSupervisorOptions

interface Answered<Value extends WorkerResult> {
  readonly kind: 'answered'
  readonly value: Value
}

/** A call without an answer, because its worker died. */
type Lost = Extract<AttemptResult, { kind: 'lost' }>

/**
 * Runs rollouts on several threads or processes. Each goes to the worker that suits it best; a rollout that was lost with its
 * worker is answered as lost, with a verdict on what to do with it.
 *
 * No queue grows here: a call waits only while no worker takes work, and there is one call per admitted rollout, so the
 * scheduler's concurrency is the bound and its places are the back-pressure.
 */
export class WorkerPool extends Resource implements Executor {
  readonly #supervisor: WorkerSupervisor
  readonly #quarantine: Quarantine
  #state: 'open' | 'draining' = 'open'
  #calls = 0

  private constructor(supervisor: WorkerSupervisor, quarantine: Quarantine) {
    super()
    this.#supervisor = supervisor
    this.#quarantine = quarantine
  }

  /** Resolves when every worker has loaded the environment, which they do all at once; rejects if one cannot. */
  static async start(options: WorkerPoolOptions): Promise<WorkerPool> {
    const quarantine = new Quarantine()
    const supervisor = await WorkerSupervisor.start(options, (death) => quarantine.noteDeath(death))
    return new WorkerPool(supervisor, quarantine)
  }

  async run(job: RolloutJob, signal: AbortSignal): Promise<AttemptResult> {
    const call = { key: job.id, task: job.task.index, signal }
    const answer = await this.#carryOut<AttemptResult>({ kind: 'run', job }, call)
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

  get takesWork(): boolean {
    return this.#state === 'open' && this.#supervisor.takesWork
  }

  models(): readonly ModelStatus[] {
    return this.#supervisor.models()
  }

  /** The status of all workers; those in quarantine have ids below zero. */
  workers(): readonly WorkerStatus[] {
    return this.#supervisor.statuses()
  }

  offload(): readonly OffloadStatus[] {
    return this.#supervisor.offload()
  }

  servers(): readonly ToolServerStatus[] {
    return this.#supervisor.servers()
  }

  /** Resolves when new workers are ready. Surplus workers finish what they run, meanwhile and afterwards. */
  resize(size: number): Promise<void> {
    return this.#supervisor.resize(size)
  }

  /**
   * Replaces every worker by a fresh one, one after another: there are never fewer than before. Resolves when all are ready;
   * the old ones finish what they run.
   */
  restart(): Promise<void> {
    return this.#supervisor.restart()
  }

  /** Refuses new calls, lets those that run end, and closes. A call that is lost meanwhile may come again. */
  async drain(): Promise<void> {
    this.#state = 'draining'
    while (this.#calls > 0 && !this.isClosed) {
      await this.#supervisor.changed
      // A caller whose call was lost asks again at once, but not before the next turn.
      await nextTurn()
    }
    await this.close()
  }

  protected onClose(): Promise<void> {
    return this.#supervisor.close()
  }

  async #untilAnswered<Value extends WorkerResult>(request: WorkerRequest, call: Call): Promise<Value> {
    for (;;) {
      const answer = await this.#carryOut<Value>(request, call)
      if (answer.kind === 'answered') return answer.value
      if (answer.verdict !== 'again') throw new MillraceError('worker_lost', answer.why)
    }
  }

  async #carryOut<Value extends WorkerResult>(request: WorkerRequest, call: Call): Promise<Answered<Value> | Lost> {
    if (this.#state === 'draining' && !this.#quarantine.isSuspect(call.key)) {
      throw new MillraceError('closed', 'the workers take nothing new: they are draining')
    }
    this.#calls += 1
    let comesAgain = false
    try {
      const answer = await this.#attempt<Value>(request, call)
      comesAgain = answer.kind === 'lost' && answer.verdict === 'again'
      return answer
    } finally {
      if (!comesAgain) this.#quarantine.forget(call.key)
      this.#calls -= 1
      if (this.#calls === 0) this.#supervisor.announce()
    }
  }

  /** Finds a worker, waiting until there is one, and asks it. A suspect goes to the worker of its cohort. */
  async #attempt<Value extends WorkerResult>(request: WorkerRequest, call: Call): Promise<Answered<Value> | Lost> {
    for (;;) {
      this.#supervisor.throwIfUnable()
      call.signal.throwIfAborted()
      const cohort = this.#quarantine.cohortOf(call.key)
      if (cohort === undefined) {
        const worker = this.#supervisor.choose(call.task)
        if (worker) return await this.#ask<Value>(worker, request, call)
      } else {
        const isolated = this.#supervisor.takeIsolated(cohort)
        if (isolated) {
          try {
            const worker = await raced(isolated.worker, call.signal)
            if (!worker.isGone) return await this.#ask<Value>(worker, request, call)
            continue
          } finally {
            this.#supervisor.giveBackIsolated(isolated)
          }
        }
      }
      await raced(this.#supervisor.changed, call.signal)
    }
  }

  async #ask<Value extends WorkerResult>(
    worker: PoolWorker,
    request: WorkerRequest,
    call: Call,
  ): Promise<Answered<Value> | Lost> {
    try {
      const value = await worker.ask<Value>(request, call)
      this.#supervisor.noteEnd()
      return { kind: 'answered', value }
    } catch (error) {
      const { death } = worker
      if (!death || error !== death) throw error
      const { losses, verdict } = this.#quarantine.lossOf(call.key)
      const history = verdict === 'again' ? '' : `${losses} workers were lost with this on them; of the last one: `
      return { kind: 'lost', verdict, why: `${history}${death.rawMessage}` }
    }
  }
}
