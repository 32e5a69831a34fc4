import type { TokenRecord } from '../schema/index.ts'

/** More versions than a rollout can be behind and still be of use. The oldest ones are forgotten. */
const maxVersions = 256

/**
 * The versions of a model's weights that its backends have named, the oldest first. Versions that are integers are ordered by
 * number, because a backend that lags behind may name an old one late. Others are ordered as they first appeared.
 */
export class WeightVersions {
  readonly #onNew: ((version: string) => void) | undefined
  #order: string[] = []

  constructor(onNew?: (version: string) => void) {
    this.#onNew = onNew
  }

  get all(): readonly string[] {
    return this.#order
  }

  get newest(): string | undefined {
    return this.#order.at(-1)
  }

  /** A backend has named the version. */
  note(version: string): void {
    if (version === this.newest || this.#order.includes(version)) return
    const number = integer(version)
    let place = this.#order.length
    while (place > 0 && number < integer(this.#order[place - 1])) place -= 1
    this.#order.splice(place, 0, version)
    if (this.#order.length > maxVersions) this.#order.shift()
    this.#onNew?.(version)
  }

  /** Takes the order of all workers together. */
  replace(order: readonly string[]): void {
    this.#order = [...order]
  }

  /** How many versions are newer. Integers need not all have been named: their difference counts. */
  behind(version: string): number {
    const { newest } = this
    if (newest === undefined || newest === version) return 0
    const difference = integer(newest) - integer(version)
    if (!Number.isNaN(difference)) return Math.max(0, difference)
    // A version that no backend has named since the start was sampled in an earlier launch: all others are newer.
    return this.#order.length - 1 - this.#order.indexOf(version)
  }
}

/** NaN, which is neither less nor greater than any number, if it is no integer. */
function integer(version: string | undefined): number {
  return version !== undefined && /^\d{1,15}$/.test(version) ? Number(version) : Number.NaN
}

/** The versions that sampled the tokens of a reply, as far as the reply says them. */
export function versionsIn({ version, versionSpans }: TokenRecord): readonly string[] {
  if (versionSpans) return versionSpans.map((span) => span.version)
  return version === undefined ? [] : [version]
}

export interface VersionLag {
  readonly version: string
  readonly newest: string
  readonly behind: number
}

/** The versions that sampled the tokens of one rollout and its children: a few for each of its models. */
export class SampledVersions {
  readonly #sampled = new Map<WeightVersions, Set<string>>()

  note(of: WeightVersions, version: string): void {
    const known = this.#sampled.get(of)
    if (known) known.add(version)
    else this.#sampled.set(of, new Set([version]))
  }

  noteAll(of: WeightVersions, tokens: TokenRecord): void {
    for (const version of versionsIn(tokens)) this.note(of, version)
  }

  /** The version that is furthest behind the newest one of its model; undefined if none is behind. */
  furthestBehind(): VersionLag | undefined {
    let furthest: VersionLag | undefined
    for (const [of, versions] of this.#sampled) {
      for (const version of versions) {
        const behind = of.behind(version)
        if (behind > (furthest?.behind ?? 0)) furthest = { version, newest: of.newest ?? version, behind }
      }
    }
    return furthest
  }
}
