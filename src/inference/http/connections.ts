import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Dispatcher } from 'undici'
import { MillraceError } from '../../errors/index.ts'
import { Resource, type Variables } from '../../kit/index.ts'
import { poolTo } from './pool-to.ts'
import { proxyFor } from './proxy.ts'
import { readAuthority } from './read-authority.ts'

export interface ConnectionsOptions {
  readonly url: URL
  readonly connections: number
  readonly connectTimeoutMs: number
  readonly caFile: string | undefined
  readonly env: Variables
}

/**
 * One pool of connections among several to the same backend. `busy` counts the requests handed to it that have not ended; the
 * code that dispatches them counts.
 */
export interface Shard {
  readonly dispatcher: Dispatcher
  busy: number
}

/**
 * undici finds a free connection by walking the pool's list, so a call costs twice as much at 2,048 connections as at 64; and
 * it closes a pool's sockets in one turn of the loop, which takes 60 ms for 2,048. Several small pools avoid both.
 */
const maxShardConnections = 256

/** The connections to one backend: several bounded pools, or a single one if the environment names a proxy. */
export class Connections extends Resource {
  readonly #shards: readonly Shard[]
  readonly #shardSize: number

  constructor({ url, connections, connectTimeoutMs, caFile, env }: ConnectionsOptions) {
    super()
    const authority = caFile === undefined ? undefined : readAuthority(caFile)
    const proxy = proxyFor(url, env)
    const count = proxy === undefined ? Math.ceil(connections / maxShardConnections) : 1
    this.#shardSize = Math.ceil(connections / count)
    const pool = { origin: url.origin, proxy, connections: this.#shardSize, connectTimeoutMs, authority }
    this.#shards = Array.from({ length: count }, () => ({ busy: 0, dispatcher: poolTo(pool) }))
  }

  /** The first pool with a connection to spare, so that those in use stay warm; if none has, the one with the least to do. */
  pick(): Shard {
    let least = this.#shards[0] as Shard
    for (const shard of this.#shards) {
      if (shard.busy < this.#shardSize) return shard
      if (shard.busy < least.busy) least = shard
    }
    return least
  }

  /** Requests that have not ended. */
  get busy(): number {
    return this.#shards.reduce((sum, { busy }) => sum + busy, 0)
  }

  protected async onClose(): Promise<void> {
    for (const { dispatcher } of this.#shards) {
      await dispatcher.destroy(new MillraceError('closed', 'the connections are closed'))
      await nextTurn()
    }
  }
}
