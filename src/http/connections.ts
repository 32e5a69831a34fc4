import { readFileSync } from 'node:fs'
import type { LookupFunction } from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { createSecureContext, type SecureContext } from 'node:tls'
import type * as Undici from 'undici'
import type { Dispatcher } from 'undici'
import { MillraceError } from '../errors/index.ts'
import { onFirstUse, Resource, type Variables } from '../kit/index.ts'
import { proxyFor } from './proxy.ts'

/** How long our servers keep an idle connection: longer than clients do, so that it is they who close it. */
export const keepAliveMs = 5 * 60_000

interface ConnectionsOptions {
  readonly url: URL
  readonly connections: number
  readonly connectTimeoutMs: number
  readonly caFile: string | undefined
  readonly env: Variables
  /** Finds the addresses of names, and refuses some of them. Default: the machine's own way. A proxy finds them itself. */
  readonly lookup?: LookupFunction | undefined
}

/** One of several pools to the same backend. `busy` counts its open requests; the code that dispatches them counts. */
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
  /** The pool, if there is one: then none has to be picked. */
  readonly only: Shard | undefined
  readonly #shards: readonly Shard[]
  readonly #shardSize: number

  constructor({ url, connections, connectTimeoutMs, caFile, env, lookup }: ConnectionsOptions) {
    super()
    const authority = caFile === undefined ? undefined : readAuthority(caFile)
    const proxy = proxyFor(url, env)
    const count = proxy === undefined ? Math.ceil(connections / maxShardConnections) : 1
    this.#shardSize = Math.ceil(connections / count)
    const pool = { origin: url.origin, proxy, connections: this.#shardSize, connectTimeoutMs, authority, lookup }
    this.#shards = Array.from({ length: count }, () => ({ busy: 0, dispatcher: connectionPool(pool) }))
    if (count === 1) this.only = this.#shards[0]
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

const loadUndici = onFirstUse((load) => load('undici') as typeof Undici)

interface ConnectionPoolOptions {
  readonly origin: string
  readonly proxy: string | undefined
  readonly connections: number
  readonly connectTimeoutMs: number
  readonly authority: SecureContext | undefined
  readonly lookup?: LookupFunction | undefined
}

/** undici's timers are off, because each exchange has its own. */
const shared = { allowH2: false, headersTimeout: 0, bodyTimeout: 0 } as const

/**
 * A bounded pool of connections to one server, direct or through a proxy. HTTP/1.1 only: a connection carries one request, so
 * that aborting a request closes its socket and the server hears of it.
 */
export function connectionPool(options: ConnectionPoolOptions): Undici.Dispatcher {
  const { Pool } = loadUndici()
  const { origin, proxy, connections, connectTimeoutMs, authority, lookup } = options
  const tls = authority && { secureContext: authority }
  if (proxy !== undefined) return throughProxy(proxy, connections, connectTimeoutMs, tls ?? {})
  return new Pool(origin, {
    ...shared,
    connections,
    connect: { timeout: connectTimeoutMs, ...tls, ...(lookup && { lookup }) },
  })
}

/**
 * undici's ProxyAgent passes its options on to tunnels only: without the factories, the pool for plain http would have no
 * bound on connections, and timers of its own. Opening a tunnel is connecting, so a proxy has `connectTimeoutMs` for it.
 */
function throughProxy(
  uri: string,
  connections: number,
  connectTimeoutMs: number,
  requestTls: { readonly secureContext?: SecureContext },
): Undici.ProxyAgent {
  const undici = loadUndici()
  return new undici.ProxyAgent({
    uri,
    connectTimeout: connectTimeoutMs,
    requestTls,
    factory: (origin, more: object) => new undici.Pool(origin, { ...more, ...shared, connections }),
    clientFactory: (origin, more) => new undici.Pool(origin, { ...more, headersTimeout: connectTimeoutMs }),
  })
}

/** Reads and parses the file once; without a context, every new connection would parse it again. */
export function readAuthority(caFile: string): SecureContext {
  try {
    return createSecureContext({ ca: readFileSync(caFile) })
  } catch (error) {
    const message = `the certificate authority ${caFile} cannot be read: ${String(error)}. Give caFile a PEM file.`
    throw new MillraceError('config_invalid', message, { cause: error })
  }
}
