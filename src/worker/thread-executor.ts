import { Worker } from 'node:worker_threads'
import { placeOfError } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import type { ModelStatus } from '../inference/index.ts'
import { Resource, workerUrl } from '../kit/index.ts'
import type { AttemptResult, Executor, GroupJob, GroupScores, RolloutJob, WorkerStatus } from '../rollout/index.ts'
import { strayErrors } from './stray-errors.ts'
import type { FromThread, ThreadStart, ToThread } from './thread-messages.ts'

interface PendingCall {
  readonly resolve: (value: never) => void
  readonly reject: (error: unknown) => void
}

type Question<Message = ToThread> = Message extends { call: number; kind: Exclude<string, 'abort'> }
  ? Omit<Message, 'call'>
  : never

/**
 * Runs all rollouts on one thread of their own, so that an environment that computes does not hold up the run's own loop.
 * At most one call per admitted rollout is pending; the scheduler's limit is the bound.
 */
export class ThreadExecutor extends Resource implements Executor {
  readonly #worker: Worker
  readonly #exited: Promise<void>
  readonly #pending = new Map<number, PendingCall>()
  #lastCall = 0
  #death: MillraceError | undefined
  #models: readonly ModelStatus[] = []

  private constructor(worker: Worker) {
    super()
    this.#worker = worker
    this.#exited = new Promise((resolve) => worker.once('exit', () => resolve()))
    worker.on('message', this.#onMessage)
    worker.on('error', (error) => this.#onDeath(lost(error)))
    worker.on('exit', (code) => this.#onDeath(lost(new Error(`it exited with code ${code}`))))
  }

  static async start(start: ThreadStart): Promise<ThreadExecutor> {
    const worker = new Worker(workerUrl(import.meta, './_rollout-thread'), {
      workerData: start,
      transferList: [start.journal],
    })
    const executor = new ThreadExecutor(worker)
    try {
      await new Promise<void>((resolve, reject) => {
        worker.on('message', (message: FromThread) => {
          if (message.kind === 'ready') resolve()
          if (message.kind === 'start-failed') reject(MillraceError.fromWire(message.error))
        })
        worker.once('error', (error) => reject(lost(error)))
        worker.once('exit', (code) => reject(lost(new Error(`it exited with code ${code}`))))
      })
      return executor
    } catch (error) {
      await executor.close()
      throw error
    }
  }

  run(job: RolloutJob, signal: AbortSignal): Promise<AttemptResult> {
    return this.#ask<AttemptResult>({ kind: 'run', job }, signal)
  }

  scoreGroup(job: GroupJob, signal: AbortSignal): Promise<GroupScores> {
    return this.#ask<GroupScores>({ kind: 'score-group', job }, signal)
  }

  preflight(signal: AbortSignal): Promise<void> {
    return this.#ask<void>({ kind: 'preflight' }, signal)
  }

  models(): readonly ModelStatus[] {
    return this.#models
  }

  workers(): readonly WorkerStatus[] {
    return []
  }

  protected async onClose(): Promise<void> {
    this.#post({ kind: 'close' })
    // A thread whose code blocks does not hear the request; ending it from outside is what is left.
    const timer = setTimeout(() => void this.#worker.terminate(), closeGraceMs)
    await this.#exited
    clearTimeout(timer)
  }

  #ask<Answer>(question: Question, signal: AbortSignal): Promise<Answer> {
    this.throwIfClosed()
    // A dead thread answers nothing: whoever asks now would wait for ever.
    if (this.#death) return Promise.reject(this.#death)
    const call = (this.#lastCall += 1)
    let patience: NodeJS.Timeout | undefined
    const onAbort = (): void => {
      this.#post({ kind: 'abort', call, reason: MillraceError.from(signal.reason, 'cancelled').toWire() })
      // Code that blocks the thread hears nothing; ending the thread is what is left.
      patience = setTimeout(() => void this.#worker.terminate(), abortGraceMs)
    }
    return new Promise<Answer>((resolve, reject) => {
      this.#pending.set(call, { resolve, reject })
      this.#post({ ...question, call })
      if (signal.aborted) onAbort()
      else signal.addEventListener('abort', onAbort, { once: true })
    }).finally(() => {
      clearTimeout(patience)
      signal.removeEventListener('abort', onAbort)
    })
  }

  readonly #onMessage = (message: FromThread): void => {
    if (message.kind === 'status') this.#models = message.models
    if (message.kind === 'stray-error') strayErrors.publish(message.error)
    if (message.kind !== 'done' && message.kind !== 'failed') return
    const pending = this.#pending.get(message.call)
    this.#pending.delete(message.call)
    if (message.kind === 'done') pending?.resolve(message.value as never)
    else pending?.reject(MillraceError.fromWire(message.error))
  }

  #post(message: ToThread): void {
    this.#worker.postMessage(message)
  }

  /** An error comes first and then the exit that it caused: the first reason stands. */
  #onDeath(error: MillraceError): void {
    this.#death ??= error
    for (const { reject } of this.#pending.values()) reject(this.#death)
    this.#pending.clear()
  }
}

const closeGraceMs = 5_000
/** Longer than a teardown may take. */
const abortGraceMs = 10_000

function lost(cause: Error): MillraceError {
  const place = placeOfError(cause)
  const what = `${cause.message}${place ? ` (at ${place})` : ''}`
  return new MillraceError(
    'worker_lost',
    `the rollout thread died: ${what}. What has ended is kept: correct that, then run again with --resume.`,
    { cause },
  )
}
