import { SSEClientTransport, StreamableHTTPClientTransport, type Transport } from '@modelcontextprotocol/client'
import { MillraceError } from '../../errors/index.ts'
import { lastingFailure, networkCause, proxyFor } from '../../inference/index.ts'
import { serverFetch, type HttpServerConfig, type ServerOptions, type ServerTool } from '../../tools/index.ts'
import type { Examination, Steps } from './_examination.ts'
import { handshake } from './_handshake.ts'

interface Findings extends Pick<Examination, 'hints'> {
  readonly listed?: readonly ServerTool[]
}

/** The last response over HTTP. */
interface Seen {
  status?: number
  contentType?: string
  /** Why the last request without a response failed. */
  networkError?: unknown
}

export interface UrlToExamine {
  readonly server: string
  readonly config: HttpServerConfig & ServerOptions
  readonly steps: Steps
  readonly signal: AbortSignal
}

/** Examines a server at a URL: whether it answers, whether path and transport are right, and whether it accepts us. */
export async function examineUrl({ server, config, steps, signal }: UrlToExamine): Promise<Findings> {
  const seen: Seen = {}
  const transport = transportTo(config, seen)
  try {
    const listed = await handshake(steps, transport, {
      server,
      config,
      signal,
      explain: (error) => explained(error, seen),
    })
    return { listed, hints: [] }
  } catch (error) {
    return { hints: await hintsFor(config, seen, error, signal) }
  }
}

function transportTo(config: HttpServerConfig, seen: Seen): Transport {
  const { type, url, headers = {} } = config
  const fetch = serverFetch(config)
  const watchedFetch: typeof fetch = async (target, init) => {
    const response = await fetch(target, init).catch((error: unknown) => {
      // The error of `fetch` says only that it failed; its cause says why.
      seen.networkError = error instanceof Error ? error.cause : undefined
      throw error
    })
    seen.status = response.status
    seen.contentType = response.headers.get('content-type') ?? ''
    return response
  }
  const options = { fetch: watchedFetch, requestInit: { headers: { ...headers } } }
  return type === 'sse'
    ? new SSEClientTransport(new URL(url), options)
    : new StreamableHTTPClientTransport(new URL(url), options)
}

function explained(error: unknown, { status }: Seen): unknown {
  if (error instanceof MillraceError) return error
  const cause = error instanceof Error && error.cause instanceof Error ? `: ${error.cause.message}` : ''
  if (status === undefined) {
    return new MillraceError(
      'tool_infra',
      `no answer (${error instanceof Error ? error.message : String(error)}${cause})`,
    )
  }
  return status < 400 ? error : new MillraceError('tool_infra', `it answered with HTTP status ${status}`)
}

async function hintsFor(config: HttpServerConfig, seen: Seen, error: unknown, signal: AbortSignal): Promise<string[]> {
  const { url, type, headers = {} } = config
  const { status, contentType = '', networkError } = seen
  if (signal.aborted) return ['it takes too long: is it overloaded, or is "startTimeoutMs" too short?']
  const target = new URL(url)
  const { origin, hostname, pathname } = target
  // The failed step already says this, and what to do.
  if (networkError instanceof MillraceError || lastingFailure(networkError) !== undefined) return []
  if (status === undefined && proxyFor(target, process.env) !== undefined) {
    const way = `HTTPS_PROXY or HTTP_PROXY says to go through a proxy to ${hostname}`
    return [`${way}: is that right, and does it run? NO_PROXY=${hostname} goes past it`]
  }
  const { code } = networkCause(networkError)
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN') {
    return [`no address is known for ${hostname}: is the host name right, and can this machine look it up?`]
  }
  if (status === undefined) return [`nobody answers at ${origin}: is the server running, and is that its port?`]
  if (status === 401 || status === 403) {
    const has = Object.keys(headers).some((name) => name.toLowerCase() === 'authorization')
    return [
      has
        ? 'it refuses the key in "headers": is it right, and still valid?'
        : 'it wants to know who asks: give it "headers": { "Authorization": "Bearer ${…}" }',
    ]
  }
  if (type === 'sse') return ['if the server speaks Streamable HTTP, as most now do, its "type" is "http"']
  if (await speaksOldTransport(config)) return ['it speaks the older transport: set "type": "sse"']
  if (status === 404 || status === 405) return [`there is no MCP at ${pathname}: ${otherPath(pathname)}`]
  if (contentType.includes('text/html')) return [`${url} is a web page: ${otherPath(pathname)}`]
  return [`what it answered is not MCP: ${MillraceError.from(error, 'tool_infra').rawMessage}`]
}

function otherPath(pathname: string): string {
  return pathname.endsWith('/mcp')
    ? 'is that its host and port, and does its documentation name another path?'
    : 'its path is often /mcp'
}

const askMs = 3_000

/** Whether the server speaks the old transport: then it begins a stream of events when asked for one. */
async function speaksOldTransport(config: HttpServerConfig): Promise<boolean> {
  const { url, headers = {} } = config
  const fetch = serverFetch(config)
  const late = new AbortController()
  const timer = setTimeout(() => late.abort(), askMs)
  try {
    const response = await fetch(url, { headers: { ...headers, accept: 'text/event-stream' }, signal: late.signal })
    return response.ok && (response.headers.get('content-type') ?? '').includes('text/event-stream')
  } catch {
    return false
  } finally {
    clearTimeout(timer)
    late.abort()
  }
}
