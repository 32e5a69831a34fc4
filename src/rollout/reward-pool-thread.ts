import { Worker } from 'node:worker_threads'
import { MillraceError } from '../errors/index.ts'
import { nameBlockedThread, startVariables, workerUrl } from '../kit/index.ts'
import type { EnvironmentModule, FromRewardThread, ToRewardThread } from './reward-pool-messages.ts'

export type RewardAnswer = Extract<FromRewardThread, { kind: 'scored' | 'failed' }>

/** One thread of the pool, as the pool holds it. Scores one rollout at a time. */
export class RewardThread {
  /** Rejects if the environment cannot be loaded on the thread, or the thread dies while it loads. */
  readonly ready: Promise<void>
  readonly exited: Promise<void>
  readonly #worker: Worker
  readonly #ready = Promise.withResolvers<void>()
  #answer: PromiseWithResolvers<RewardAnswer> | undefined

  constructor(start: EnvironmentModule) {
    this.ready = this.#ready.promise
    this.#worker = new Worker(workerUrl(import.meta, './reward-pool-entry'), {
      name: 'millrace-reward',
      workerData: start,
      env: startVariables(),
    })
    this.#worker.on('message', this.#onMessage)
    this.#worker.on('error', (error) => this.#fail(died(error.message)))
    const { promise, resolve } = Promise.withResolvers<void>()
    this.exited = promise
    this.#worker.once('exit', (code) => {
      this.#fail(died(`it exited with code ${code}`))
      resolve()
    })
  }

  /** Rejects if the thread dies. Throws at once if the question cannot be cloned; the thread is then as free as before. */
  ask(question: ToRewardThread): Promise<RewardAnswer> {
    this.#worker.postMessage(question)
    this.#answer = Promise.withResolvers()
    return this.#answer.promise
  }

  blockedBy(signal: AbortSignal): Promise<string | undefined> {
    return nameBlockedThread(this.#worker, signal)
  }

  /** Ends the thread at once, whatever it does; a native call is waited for. */
  async end(): Promise<void> {
    await this.#worker.terminate()
  }

  readonly #onMessage = (message: FromRewardThread): void => {
    if (message.kind === 'ready') this.#ready.resolve()
    else if (message.kind === 'start-failed') this.#ready.reject(MillraceError.fromWire(message.error))
    else this.#answer?.resolve(message)
  }

  /** A thread emits an error and then the exit that it caused: the first reason stands. */
  #fail(error: MillraceError): void {
    this.#ready.reject(error)
    this.#answer?.reject(error)
  }
}

function died(how: string): MillraceError {
  return new MillraceError('reward_failed', `the thread it ran on died: ${how}`)
}
