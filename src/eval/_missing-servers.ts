import type { MissingServer } from '../schema/index.ts'
import type { Summary } from './summary.ts'

/** More servers than any environment has; any beyond that are not counted. */
const maxServers = 100

/** Counts the rollouts that each tool server was missing in. */
export class MissingServers {
  readonly #servers = new Map<string, { rollouts: number; readonly cause: string }>()

  /** Adds the missing servers of one rollout. */
  add(missing: readonly MissingServer[]): void {
    for (const { server, cause } of missing) {
      const known = this.#servers.get(server)
      if (known) known.rollouts += 1
      else if (this.#servers.size < maxServers) this.#servers.set(server, { rollouts: 1, cause })
    }
  }

  list(): Summary['missingServers'] {
    return Array.from(this.#servers, ([server, { rollouts, cause }]) => ({ server, rollouts, cause }))
  }
}
