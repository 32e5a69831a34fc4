import type { SecureContext } from 'node:tls'
import type * as Undici from 'undici'
import { onFirstUse } from '../../kit/index.ts'

const loadUndici = onFirstUse((load) => load('undici') as typeof Undici)

export interface PoolToOptions {
  readonly origin: string
  /** What `proxyFor` says of it. */
  readonly proxy: string | undefined
  readonly connections: number
  readonly connectTimeoutMs: number
  /** Whom it trusts, if not those whom Node does. */
  readonly authority: SecureContext | undefined
}

/** Whoever sends a request has timers of its own, so undici's are off. */
const shared = { allowH2: false, headersTimeout: 0, bodyTimeout: 0 } as const

/**
 * A bounded pool of connections to one server, straight or through a proxy. HTTP/1.1 only: one request a connection, so
 * that aborting a request closes its socket and the server hears of it.
 */
export function poolTo(options: PoolToOptions): Undici.Dispatcher {
  const { Pool } = loadUndici()
  const { origin, proxy, connections, connectTimeoutMs, authority } = options
  const tls = authority && { secureContext: authority }
  if (proxy !== undefined) return throughProxy(proxy, connections, connectTimeoutMs, tls ?? {})
  return new Pool(origin, { ...shared, connections, connect: { timeout: connectTimeoutMs, ...tls } })
}

/**
 * undici hands its options on to tunnels only: the pool that carries plain http would have as many connections as there are
 * requests, and limits of time of its own. And a tunnel is a connection, so a proxy that does not open one has no longer for it.
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
