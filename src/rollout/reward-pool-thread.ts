import { MillraceError } from '../errors/index.ts'
import { nameBlockedThread, Thread, workerUrl } from '../kit/index.ts'
import type { EnvironmentModule, FromRewardThread, ToRewardThread } from './reward-pool-messages.ts'

export type RewardAnswer = Extract<FromRewardThread, { kind: 'scored' | 'failed' }>

/** One thread of the pool, as the pool holds it. Scores one rollout at a time. */
export class RewardThread {
  /** Rejects if the environment cannot be loaded on the thread, or the thread dies while it loads. */
  readonly ready: Promise<void>
  readonly exited: Promise<void>
  readonly #thread: Thread<ToRewardThread>
  readonly #ready = Promise.withResolvers<void>()
  #answer: PromiseWithResolvers<RewardAnswer> | undefined

  constructor(start: EnvironmentModule) {
    this.ready = this.#ready.promise
    const entry = workerUrl(import.meta, './reward-pool-entry')
    this.#thread = new Thread(entry, { name: 'millrace-reward', workerData: start })
    this.#thread.on('message', this.#onMessage)
    this.exited = this.#thread.ended.then((why) => {
      const error = new MillraceError('reward_failed', `the thread it ran on died: ${why.message}`, { cause: why })
      this.#ready.reject(error)
      this.#answer?.reject(error)
    })
  }

  /** Rejects if the thread dies. Throws at once if the question cannot be cloned; the thread is then as free as before. */
  ask(question: ToRewardThread): Promise<RewardAnswer> {
    this.#thread.postMessage(question)
    this.#answer = Promise.withResolvers()
    return this.#answer.promise
  }

  blockedBy(signal: AbortSignal): Promise<string | undefined> {
    return nameBlockedThread(this.#thread, signal)
  }

  /** Ends the thread at once, whatever it does; a native call is waited for. */
  async end(): Promise<void> {
    await this.#thread.terminate()
  }

  readonly #onMessage = (message: FromRewardThread): void => {
    if (message.kind === 'ready') this.#ready.resolve()
    else if (message.kind === 'start-failed') this.#ready.reject(MillraceError.fromWire(message.error))
    else this.#answer?.resolve(message)
  }
}
