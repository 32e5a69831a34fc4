import { MillraceError } from '../errors/index.ts'

const maxFailedStarts = 5
/** Several times as many deaths as quarantine needs to find a culprit. Rollouts that end in between reset the count. */
const maxDeaths = 20

/** Counts failures without a success in between, and says when going on would go on for ever. */
export class ConsecutiveFailures {
  #failedStarts = 0
  #deaths = 0

  get failedStarts(): number {
    return this.#failedStarts
  }

  noteStart(): void {
    this.#failedStarts = 0
  }

  noteEnd(): void {
    this.#deaths = 0
  }

  /** The reason to give up, once it is time to. */
  noteFailedStart(cause: MillraceError): MillraceError | undefined {
    this.#failedStarts += 1
    if (this.#failedStarts < maxFailedStarts) return undefined
    return new MillraceError(
      'worker_lost',
      `no worker can be started, ${this.#failedStarts} tries failed, the last with: ${cause.rawMessage}. What has ended is kept: correct that, then run the same again.`,
      { cause },
    )
  }

  noteDeath(cause: MillraceError): MillraceError | undefined {
    this.#deaths += 1
    if (this.#deaths < maxDeaths) return undefined
    return new MillraceError(
      'worker_lost',
      `${this.#deaths} workers died and nothing ended in between; of the last one is known: ${cause.rawMessage}. What has ended is kept: correct that, then run the same again.`,
      { cause },
    )
  }
}
