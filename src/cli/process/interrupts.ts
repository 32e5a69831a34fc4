import { exitCodes, type ExitCode } from './exit-codes.ts'
import type { CommandIo } from './io.ts'

const exitCodeOf = {
  SIGINT: exitCodes.interrupted,
  SIGTERM: exitCodes.terminated,
  SIGHUP: exitCodes.hungUp,
} as const

type Signal = keyof typeof exitCodeOf

/**
 * Handles signals: the first drains, the second stops. A third is not caught any more and ends the process, which a run
 * survives like any crash. A later SIGHUP never counts as the second signal: when a terminal is closed, the shell
 * passes the signal on to its programs, which may get it again.
 */
export class Interrupts implements Disposable {
  readonly #events: CommandIo['events']
  readonly #onFirst: () => void
  readonly #onSecond: () => void
  readonly #listeners: Readonly<Record<Signal, () => void>> = {
    SIGINT: () => this.#receive('SIGINT'),
    SIGTERM: () => this.#receive('SIGTERM'),
    SIGHUP: () => this.#receive('SIGHUP'),
  }
  #first: Signal | undefined

  constructor(events: CommandIo['events'], actions: { readonly drain: () => void; readonly stop: () => void }) {
    this.#events = events
    this.#onFirst = actions.drain
    this.#onSecond = actions.stop
    for (const [signal, listener] of Object.entries(this.#listeners)) events.on(signal, listener)
  }

  /** The exit code for the first signal; undefined if there was none. */
  get exitCode(): ExitCode | undefined {
    return this.#first && exitCodeOf[this.#first]
  }

  [Symbol.dispose](): void {
    for (const [signal, listener] of Object.entries(this.#listeners)) this.#events.off(signal, listener)
  }

  #receive(signal: Signal): void {
    if (this.#first === undefined) {
      this.#first = signal
      this.#onFirst()
      return
    }
    if (signal === 'SIGHUP') return
    this.#events.off('SIGINT', this.#listeners.SIGINT)
    this.#events.off('SIGTERM', this.#listeners.SIGTERM)
    this.#onSecond()
  }
}
