import { readFileSync } from 'node:fs'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { createSecureContext, type SecureContext } from 'node:tls'
import { Pool, ProxyAgent, type Dispatcher } from 'undici'
import { MillraceError } from '../../errors/index.ts'
import { Resource, type Variables } from '../../kit/index.ts'
import { proxyFor } from './proxy.ts'

export interface ConnectionsOptions {
  readonly url: URL
  readonly connections: number
  readonly connectTimeoutMs: number
  readonly caFile: string | undefined
  readonly env: Variables
}

/**
 * One pool of connections among several to the same backend. `busy` counts what was handed to it and has not ended;
 * whoever dispatches counts up and down.
 */
export interface Shard {
  readonly dispatcher: Dispatcher
  busy: number
}

/**
 * undici finds a free connection by walking the pool's list, so a call costs twice as much at 2,048 connections as at 64;
 * and it closes a pool's sockets in one turn of the loop, which takes 60 ms for that many. Several small pools do neither.
 */
const maxShardConnections = 256

/** The exchange has timers of its own, so undici's are off. */
const shared = { allowH2: false, headersTimeout: 0, bodyTimeout: 0 } as const

/**
 * The connections to one backend: bounded pools, or one through a proxy where the environment names one. HTTP/1.1
 * only: one request a connection, so that aborting a request closes its socket and the server stops generating.
 */
export class Connections extends Resource {
  readonly #shards: readonly Shard[]
  readonly #shardSize: number

  constructor({ url, connections, connectTimeoutMs, caFile, env }: ConnectionsOptions) {
    super()
    const tls = caFile === undefined ? {} : { secureContext: readAuthority(caFile) }
    const proxy = proxyFor(url, env)
    const count = proxy === undefined ? Math.ceil(connections / maxShardConnections) : 1
    this.#shardSize = Math.ceil(connections / count)
    const size = this.#shardSize
    this.#shards = Array.from({ length: count }, () => ({
      busy: 0,
      dispatcher:
        proxy === undefined
          ? new Pool(url.origin, { ...shared, connections: size, connect: { timeout: connectTimeoutMs, ...tls } })
          : throughProxy({ uri: proxy, connections: size, connectTimeoutMs, tls }),
    }))
  }

  /** The first with a connection to spare, so that those in use stay warm; when none has, the one with the least to do. */
  pick(): Shard {
    let least = this.#shards[0] as Shard
    for (const shard of this.#shards) {
      if (shard.busy < this.#shardSize) return shard
      if (shard.busy < least.busy) least = shard
    }
    return least
  }

  protected async onClose(): Promise<void> {
    for (const { dispatcher } of this.#shards) {
      await dispatcher.destroy(new MillraceError('closed', 'the connections are closed'))
      await nextTurn()
    }
  }
}

interface ProxyOptions {
  readonly uri: string
  readonly connections: number
  readonly connectTimeoutMs: number
  readonly tls: { readonly secureContext?: SecureContext }
}

/**
 * undici hands its options on to tunnels only: the pool that carries plain http would have as many connections as there are
 * requests, and limits of time of its own. And a tunnel is a connection, so a proxy that does not open one has no longer for it.
 */
function throughProxy({ uri, connections, connectTimeoutMs, tls }: ProxyOptions): ProxyAgent {
  return new ProxyAgent({
    uri,
    connectTimeout: connectTimeoutMs,
    requestTls: tls,
    factory: (origin, more: object) => new Pool(origin, { ...more, ...shared, connections }),
    clientFactory: (origin, more) => new Pool(origin, { ...more, headersTimeout: connectTimeoutMs }),
  })
}

/** Read and parsed once: a context made anew for every connection parses the file every time. */
function readAuthority(caFile: string): SecureContext {
  try {
    return createSecureContext({ ca: readFileSync(caFile) })
  } catch (error) {
    const message = `the certificate authority ${caFile} cannot be read: ${String(error)}. Give caFile a PEM file.`
    throw new MillraceError('config_invalid', message, { cause: error })
  }
}
