import type { LaterVersion } from '../apis/index.ts'
import { settlesWithin } from '../kit/index.ts'

/** The longest wait for backends that do not say the version of their weights. */
const maxWaitMs = 5_000

interface DueVersion {
  /** Resolves when the version is recorded, or known to stay unknown. */
  readonly recorded: Promise<void>
  look(): Promise<void>
}

/** Replies whose weight version is still to be found out: as many as ended since their backends were last asked. */
export class DueVersions {
  readonly #due = new Set<DueVersion>()

  /** `onFound` gets the version, or undefined if it stays unknown. */
  add(later: LaterVersion, onFound: (version: string | undefined) => void): void {
    const recorded = later.find().then((version) => {
      this.#due.delete(due)
      onFound(version)
    })
    const due = { recorded, look: () => later.look() }
    this.#due.add(due)
  }

  /** Asks the backends now. Resolves when all versions are recorded, or after a while; undefined if none is due. */
  recorded(): Promise<unknown> | undefined {
    if (this.#due.size === 0) return undefined
    const all = Array.from(this.#due, (due) => due.look().then(() => due.recorded))
    return settlesWithin(Promise.all(all), maxWaitMs)
  }
}
