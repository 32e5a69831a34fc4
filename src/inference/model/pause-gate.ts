import { MillraceError } from '../../errors/index.ts'
import { WaitList } from '../../kit/index.ts'

/**
 * What a pause does to replies in the making. `finish`: they end, and the pause waits for them. `abort`: they fail, and are sent again
 * after it if nothing of them was passed on. `continue`: they go on from their partial tokens after it.
 */
export const pauseModes = ['finish', 'abort', 'continue'] as const

export type PauseMode = (typeof pauseModes)[number]

/** One try under way at a backend, as a pause of that backend sees it. */
export interface GatedCall {
  /** Whether its reply can go on from partial tokens. */
  readonly isContinuable: boolean
  /** The engine is about to abort the try, or it is aborted here, with this reason: it is not the call's fault. */
  interrupt(reason?: MillraceError): void
}

/** The version of the weights that was set. A new object for each change, so that a version that was set twice is not taken for one. */
export interface SetVersion {
  readonly version: string
}

/** Stands before one backend, for all models that it serves. While it is paused no call is sent there. */
export class PauseGate {
  /** The version that was set last; undefined if none was, or while it changes. */
  version: SetVersion | undefined
  /** The version of the last reply that had one. */
  lastVersion: string | undefined
  #isPaused = false
  readonly #running = new Set<GatedCall>()
  readonly #idle = new WaitList()
  readonly #onResume = new Set<() => void>()

  get isPaused(): boolean {
    return this.#isPaused
  }

  /** Tries under way. */
  get running(): number {
    return this.#running.size
  }

  get canContinue(): boolean {
    for (const call of this.#running) if (!call.isContinuable) return false
    return true
  }

  enter(call: GatedCall): void {
    this.#running.add(call)
  }

  leave(call: GatedCall): void {
    this.#running.delete(call)
    if (this.#running.size === 0) this.#idle.resolveAll()
  }

  pause(): void {
    this.#isPaused = true
  }

  resume(): void {
    if (!this.#isPaused) return
    this.#isPaused = false
    for (const listener of this.#onResume) listener()
  }

  onResume(listener: () => void): void {
    this.#onResume.add(listener)
  }

  offResume(listener: () => void): void {
    this.#onResume.delete(listener)
  }

  /** The engine aborts all tries, and answers with what it has of them. */
  expectAborts(): void {
    for (const call of this.#running) call.interrupt()
  }

  abortAll(): void {
    const reason = new MillraceError('model_truncated', 'the reply was aborted for an update of the weights; try again')
    for (const call of this.#running) call.interrupt(reason)
  }

  /** Resolves when no try is under way. */
  async idle(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted()
    if (this.#running.size > 0) await this.#idle.wait(signal, undefined)
  }
}
