import { exitCodes, type ExitCode } from './exit-codes.ts'
import type { CommandIo } from './io.ts'

const signals = ['SIGINT', 'SIGTERM'] as const

/**
 * The first signal drains, the second stops; a third is not caught any more and ends the process, which a run survives
 * like any crash.
 */
export class Interrupts implements Disposable {
  readonly #events: CommandIo['events']
  readonly #onFirst: () => void
  readonly #onSecond: () => void
  readonly #listeners: Readonly<Record<(typeof signals)[number], () => void>> = {
    SIGINT: () => this.#receive('SIGINT'),
    SIGTERM: () => this.#receive('SIGTERM'),
  }
  #first: (typeof signals)[number] | undefined

  constructor(events: CommandIo['events'], actions: { readonly drain: () => void; readonly stop: () => void }) {
    this.#events = events
    this.#onFirst = actions.drain
    this.#onSecond = actions.stop
    for (const signal of signals) events.on(signal, this.#listeners[signal])
  }

  /** Undefined while there was no signal. */
  get exitCode(): ExitCode | undefined {
    if (this.#first === undefined) return undefined
    return this.#first === 'SIGINT' ? exitCodes.interrupted : exitCodes.terminated
  }

  [Symbol.dispose](): void {
    for (const signal of signals) this.#events.off(signal, this.#listeners[signal])
  }

  #receive(signal: (typeof signals)[number]): void {
    if (this.#first === undefined) {
      this.#first = signal
      this.#onFirst()
      return
    }
    this[Symbol.dispose]()
    this.#onSecond()
  }
}
