import type { SecureContext } from 'node:tls'
import type * as Undici from 'undici'
import { onFirstUse } from '../../kit/index.ts'

const loadUndici = onFirstUse((load) => load('undici') as typeof Undici)

export interface PoolToOptions {
  readonly origin: string
  /** The proxy that `proxyFor` names for the origin. */
  readonly proxy: string | undefined
  readonly connections: number
  readonly connectTimeoutMs: number
  /** The certificate authority to trust, if not Node's own list. */
  readonly authority: SecureContext | undefined
}

/** undici's timers are off, because each exchange has its own. */
const shared = { allowH2: false, headersTimeout: 0, bodyTimeout: 0 } as const

/**
 * A bounded pool of connections to one server, direct or through a proxy. HTTP/1.1 only: a connection carries one request, so
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
