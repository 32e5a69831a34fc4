import { readFileSync } from 'node:fs'
import { createSecureContext, type SecureContext } from 'node:tls'
import { Pool, ProxyAgent, type Dispatcher } from 'undici'
import { MillraceError } from '../errors/index.ts'
import { proxyFor, type Environment } from './proxy.ts'

export interface DispatcherOptions {
  readonly url: URL
  readonly connections: number
  readonly connectTimeoutMs: number
  readonly caFile: string | undefined
  readonly env: Environment
}

/**
 * The connections to one backend: a bounded pool, or the same through a proxy where the environment names one. HTTP/1.1
 * only: one request a connection, so that aborting a request closes its socket and the server stops generating.
 */
export function openDispatcher({ url, connections, connectTimeoutMs, caFile, env }: DispatcherOptions): Dispatcher {
  const tls = caFile === undefined ? {} : { secureContext: readAuthority(caFile) }
  // The exchange has timers of its own, so undici's are off.
  const shared = { connections, allowH2: false, headersTimeout: 0, bodyTimeout: 0 }
  const proxy = proxyFor(url, env)
  if (proxy === undefined) {
    return new Pool(url.origin, { ...shared, connect: { timeout: connectTimeoutMs, ...tls } })
  }
  return new ProxyAgent({ ...shared, uri: proxy, connectTimeout: connectTimeoutMs, requestTls: tls })
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
