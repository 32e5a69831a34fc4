import { MillraceError } from '../../errors/index.ts'
import { placeOfError } from '../../kit/index.ts'
import { strayErrors, type StrayError } from '../../worker/index.ts'
import type { CommandIo } from './io.ts'

/**
 * Handles errors of an environment that belong to no rollout: a rejected promise that nothing handles, or an exception in a
 * timer. Node would end the process for either. A rejection only gives a notice. After an exception nobody knows what still
 * works, so the run is stopped in good order, to be continued.
 */
export class StrayErrors implements Disposable {
  readonly #events: CommandIo['events']
  readonly #onFirstRejection: (text: string) => void
  readonly #onException: () => void
  #rejections = 0
  #exception: MillraceError | undefined

  constructor(
    events: CommandIo['events'],
    actions: { readonly onFirstRejection: (text: string) => void; readonly onException: () => void },
  ) {
    this.#events = events
    this.#onFirstRejection = actions.onFirstRejection
    this.#onException = actions.onException
    events.on('unhandledRejection', this.#onRejection)
    events.on('uncaughtException', this.#onUncaught)
    strayErrors.subscribe(this.#onThreadRejection)
  }

  /** The number of rejected promises that nothing handled. */
  get rejections(): number {
    return this.#rejections
  }

  /** The exception that ended the run, as an error to report. */
  get exception(): MillraceError | undefined {
    return this.#exception
  }

  [Symbol.dispose](): void {
    this.#events.off('unhandledRejection', this.#onRejection)
    this.#events.off('uncaughtException', this.#onUncaught)
    strayErrors.unsubscribe(this.#onThreadRejection)
  }

  readonly #onRejection = (reason: unknown): void => {
    const place = placeOfError(reason)
    this.#count({ message: messageOf(reason), ...(place !== undefined && { place }) })
  }

  readonly #onThreadRejection = (error: unknown): void => this.#count(error as StrayError)

  #count({ message, place }: StrayError): void {
    this.#rejections += 1
    if (this.#rejections > 1) return
    this.#onFirstRejection(
      `A promise was rejected and nobody handled it: ${message}${at(place)}. The run goes on; await it, or catch it.`,
    )
  }

  readonly #onUncaught = (thrown: unknown): void => {
    if (this.#exception) return
    const place = placeOfError(thrown)
    // Without a line of the user's code in the stack, it is a bug of ours, and reported as one.
    this.#exception =
      place === undefined
        ? new MillraceError('internal', messageOf(thrown), { cause: thrown })
        : new MillraceError(
            'agent_failed',
            `an error was thrown outside of any rollout, in a timer or an event: ${messageOf(thrown)}${at(place)}. ` +
              'The run was stopped; catch the error there, then continue.',
            { cause: thrown },
          )
    this.#onException()
  }
}

function at(place: string | undefined): string {
  return place === undefined ? '' : ` (at ${place})`
}

function messageOf(thrown: unknown): string {
  return MillraceError.from(thrown, 'internal').rawMessage
}
