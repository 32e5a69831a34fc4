import process from 'node:process'
import { MillraceError } from '../../errors/index.ts'
import { errorLocation } from '../../kit/index.ts'
import { type UnhandledError, unhandledErrors } from '../../worker/index.ts'
import { type ExitCode, exitCodes } from './exit-codes.ts'
import type { CommandIo } from './io.ts'

const exitCodeOf = {
  SIGINT: exitCodes.interrupted,
  SIGTERM: exitCodes.terminated,
  SIGHUP: exitCodes.hungUp,
} as const

/**
 * The first signal drains, the second stops, a third ends the process, which a run survives. SIGHUP never counts as the
 * second: when a terminal is closed, the shell passes it on to its programs, which may get it again.
 */
export class Interrupts implements Disposable {
  readonly #actions: { readonly drain: () => void; readonly stop: () => void }
  readonly #endings: Disposable
  readonly #hangUps: Disposable
  #first: keyof typeof exitCodeOf | undefined

  constructor(events: CommandIo['events'], actions: { readonly drain: () => void; readonly stop: () => void }) {
    this.#actions = actions
    this.#endings = listen(events, {
      SIGINT: () => this.#receive('SIGINT'),
      SIGTERM: () => this.#receive('SIGTERM'),
    })
    this.#hangUps = listen(events, { SIGHUP: () => this.#receive('SIGHUP') })
  }

  get exitCode(): ExitCode | undefined {
    return this.#first && exitCodeOf[this.#first]
  }

  [Symbol.dispose](): void {
    this.#endings[Symbol.dispose]()
    this.#hangUps[Symbol.dispose]()
  }

  #receive(signal: keyof typeof exitCodeOf): void {
    if (this.#first === undefined) {
      this.#first = signal
      this.#actions.drain()
    } else if (signal !== 'SIGHUP') {
      this.#endings[Symbol.dispose]()
      this.#actions.stop()
    }
  }
}

/**
 * Handles errors that belong to no rollout. A promise that nobody handles only gives a notice. After an exception in a timer
 * nobody knows what still works, so the run is stopped in good order, to be continued.
 */
export class UnhandledErrors implements Disposable {
  readonly #actions: { readonly onFirstRejection: (text: string) => void; readonly onException: () => void }
  readonly #listening: Disposable
  /** The number of rejected promises that nothing handled. */
  rejections = 0
  /** The exception that ended the run, as an error to report. */
  exception: MillraceError | undefined

  constructor(
    events: CommandIo['events'],
    actions: { readonly onFirstRejection: (text: string) => void; readonly onException: () => void },
  ) {
    this.#actions = actions
    this.#listening = listen(events, {
      unhandledRejection: (reason) => {
        const place = errorLocation(reason)
        this.#count({ message: messageOf(reason), ...(place !== undefined && { place }) })
      },
      uncaughtException: (thrown) => this.#onUncaught(thrown),
    })
    unhandledErrors.subscribe(this.#onThreadRejection)
  }

  [Symbol.dispose](): void {
    this.#listening[Symbol.dispose]()
    unhandledErrors.unsubscribe(this.#onThreadRejection)
  }

  readonly #onThreadRejection = (error: unknown): void => this.#count(error as UnhandledError)

  #count({ message, place }: UnhandledError): void {
    this.rejections += 1
    if (this.rejections > 1) return
    this.#actions.onFirstRejection(
      `A rejected promise was not handled: ${message}${at(place)}. The run goes on; await it, or catch it.`,
    )
  }

  #onUncaught(thrown: unknown): void {
    if (this.exception) return
    const place = errorLocation(thrown)
    // Without a line of the user's code in the stack, it is a bug of ours, and reported as one.
    this.exception =
      place === undefined
        ? new MillraceError('internal', messageOf(thrown), { cause: thrown })
        : new MillraceError(
            'agent_failed',
            `an error was thrown outside of any rollout, in a timer or an event: ${messageOf(thrown)}${at(place)}. ` +
              'The run was stopped; catch the error there, then continue.',
            { cause: thrown },
          )
    this.#actions.onException()
  }
}

export function listen(
  events: CommandIo['events'],
  listeners: Readonly<Record<string, (value: unknown) => void>>,
): Disposable {
  for (const [name, listener] of Object.entries(listeners)) events.on(name, listener)
  return {
    [Symbol.dispose]() {
      for (const [name, listener] of Object.entries(listeners)) events.off(name, listener)
    },
  }
}

function at(place: string | undefined): string {
  return place === undefined ? '' : ` (at ${place})`
}

function messageOf(thrown: unknown): string {
  return MillraceError.from(thrown, 'internal').rawMessage
}

/**
 * Reports an exit of the process by code that is not ours (`process.exit` in a reward). The exit code becomes that of a failed
 * command, because the code's author meant something else by it.
 */
export function exitNotice(io: Pick<CommandIo, 'events' | 'stderr'>, howToGoOn: string): Disposable {
  const exit = (code: unknown): void => {
    process.exitCode = exitCodes.failed
    void io.stderr.line(
      `error: code of the environment, or a library it uses, ended the process (process.exit, code ${String(code)}). ${howToGoOn}`,
    )
  }
  return listen(io.events, { exit })
}
