import { TransformStream } from 'node:stream/web'
import {
  type FetchLike,
  type JSONRPCRequest,
  SSEClientTransport,
  SseError,
  StreamableHTTPClientTransport,
  type Transport,
} from '@modelcontextprotocol/client'
import type * as Undici from 'undici'
import type { Dispatcher } from 'undici'
import { descriptorBudget, permanentFailure, connectionPool, proxyFor, readAuthority } from '../../../http/index.ts'
import { ArraySet, onFirstUse, processShare, timerMs, settlesWithin } from '../../../kit/index.ts'
import type { HttpServerConfig } from '../config/server-config.ts'
import { sseFailure } from './call-failure.ts'
import { HttpCall, type HttpReply } from './http-call.ts'
import type { CallOutcome, CallRequest, ServerLink } from './pending-calls.ts'
import { maxErrorBytes, maxMessageBytes } from './rpc-messages.ts'

/** How long to wait for the server to take the end of a session. It would find out by itself, later. */
const goodbyeMs = 1000

const postHeaders = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' }
const getHeaders = { accept: 'text/event-stream' }

export function httpLink(config: HttpServerConfig): ServerLink {
  return config.type === 'sse' ? sseLink(config) : new StreamableLink(config)
}

/** A session over Streamable HTTP: calls bypass the SDK's transport, everything else goes through it. */
class StreamableLink implements ServerLink {
  readonly transport: StreamableHTTPClientTransport
  readonly hasRequestPerCall = true
  readonly failure = undefined
  readonly ending = {}
  readonly #headers: Readonly<Record<string, string>>
  readonly #pools: HttpPools
  readonly #lingering = new ArraySet<HttpCall>()
  /** The timers after which the SDK resumes its stream. The SDK remembers only the last one, and all must end with the link. */
  readonly #resumptions = new Set<NodeJS.Timeout>()
  /** Where posts end up. The SDK follows redirects (of `/mcp` to `/mcp/`, say); calls go straight to the target. */
  #endpoint: URL
  #closing: Promise<void> | undefined

  constructor(config: HttpServerConfig) {
    const { url, headers = {}, caFile } = config
    this.#endpoint = new URL(url)
    this.#pools = httpPools(caFile)
    this.#headers = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]))
    this.transport = new StreamableHTTPClientTransport(this.#endpoint, {
      fetch: serverFetch(config, (posted) => (this.#endpoint = posted)),
      requestInit: { headers: { ...headers } },
      reconnectionScheduler: (reconnect, delayMs) => this.#resumeAfter(reconnect, delayMs),
    })
  }

  sendCall(message: JSONRPCRequest & { id: number }, onFailure: (outcome: CallOutcome) => void): CallRequest {
    const received: Transport = this.transport
    const { requests, streams } = this.#pools
    const body = JSON.stringify(message)
    return new HttpCall({
      id: message.id,
      post: (reply) => this.#send(requests, { method: 'POST', body, headers: postHeaders }, reply),
      resume: (lastEventId, reply) =>
        this.#send(streams, { method: 'GET', headers: { ...getHeaders, 'last-event-id': lastEventId } }, reply),
      onMessage: (answer) => received.onmessage?.(answer),
      onFailure,
      lingering: this.#lingering,
    })
  }

  close(): Promise<void> {
    return (this.#closing ??= this.#close())
  }

  #send(
    dispatcher: Dispatcher,
    { method, headers, body = null }: Pick<Dispatcher.DispatchOptions, 'method' | 'body'> & { headers: object },
    reply: HttpReply,
  ): void {
    const { sessionId, protocolVersion } = this.transport
    const session = sessionId === undefined ? {} : { 'mcp-session-id': sessionId }
    const version = protocolVersion === undefined ? {} : { 'mcp-protocol-version': protocolVersion }
    const { origin, pathname, search } = this.#endpoint
    const sent = { ...this.#headers, ...headers, ...session, ...version }
    dispatcher.dispatch({ origin, path: pathname + search, method, headers: sent, body }, reply)
  }

  #resumeAfter(reconnect: () => void, delayMs: number): void {
    const timer = setTimeout(() => {
      this.#resumptions.delete(timer)
      reconnect()
    }, timerMs(delayMs))
    this.#resumptions.add(timer)
  }

  async #close(): Promise<void> {
    for (const call of this.#lingering) call.abort()
    await sayGoodbye(this.transport)
    await this.transport.close()
    for (const timer of this.#resumptions) clearTimeout(timer)
  }
}

async function sayGoodbye(transport: StreamableHTTPClientTransport): Promise<void> {
  if (transport.sessionId === undefined) return
  try {
    await settlesWithin(transport.terminateSession(), goodbyeMs)
  } catch {
    // The server is gone, or has forgotten the session already: either way there is nothing left to end.
  }
}

function sseLink(config: HttpServerConfig): ServerLink {
  const { url, headers = {} } = config
  const transport = new SSEClientTransport(new URL(url), {
    fetch: serverFetch(config),
    requestInit: { headers: { ...headers } },
  })
  let closing: Promise<void> | undefined
  // The promise must exist before its work begins, as `transport.close()` leads here again.
  const close = (): Promise<void> => (closing ??= Promise.resolve().then(() => transport.close()))
  // Left alone the transport would connect again by itself, to a new session that nobody has initialised.
  const watched: Transport = transport
  // oxlint-disable-next-line prefer-add-event-listener -- it is no event target
  watched.onerror = (error) => {
    if (error instanceof SseError) void close()
  }
  return {
    transport,
    hasRequestPerCall: false,
    failure: undefined,
    ending: {},
    sendCall(message, onFailure) {
      transport.send(message).catch((error: Error) => onFailure(sseFailure(error)))
      return undefined
    },
    close,
  }
}

/** `fetch` for the SDK's requests, with bounded replies; `onPosted` hears where a post was accepted. */
export function serverFetch({ caFile }: HttpServerConfig, onPosted: (url: URL) => void = () => {}): FetchLike {
  const { fetch } = loadUndici()
  const { requests, streams } = httpPools(caFile)
  return async (url, { method = 'GET', headers, body, signal, redirect = 'follow' } = {}) => {
    const response = await fetch(url, {
      method,
      headers: [...new Headers(headers)],
      ...(typeof body === 'string' && { body }),
      signal: signal ?? null,
      redirect,
      dispatcher: method === 'GET' ? streams : requests,
    }).catch(explain)
    if (method === 'POST' && response.ok) onPosted(new URL(url))
    return boundedResponse(response)
  }
}

/** `fetch` only says that it failed; its cause says why. */
function explain(error: unknown): never {
  const cause = error instanceof Error ? error.cause : undefined
  const why = permanentFailure(cause)
  throw why === undefined ? error : new Error(why, { cause })
}

const loadUndici = onFirstUse((load) => load('undici') as typeof Undici)

/** Requests to one origin at a time, from all sessions together; further ones wait while the deadlines of their calls run. */
const maxRequests = 1024
/** Each session may hold one stream on which its server speaks unasked. Beyond this, a session goes without until one ends. */
const maxStreams = 4096
const connectTimeoutMs = 10_000
/** How many private authorities have pools of their own; those unused longest are dropped, and made again when needed. */
const maxAuthorities = 32

/** Streams have their own connections, since open streams would otherwise leave none for calls. */
interface HttpPools {
  readonly requests: Undici.Dispatcher
  readonly streams: Undici.Dispatcher
}

/** The pools by the file of a private authority; in the order of their last use. */
const known = new Map<string | undefined, HttpPools>()

/** Shared by all that trust the same authority. Nobody closes them: undici ends idle sockets, which keep no process alive. */
function httpPools(caFile: string | undefined): HttpPools {
  const pools = known.get(caFile) ?? openPools(caFile)
  known.delete(caFile)
  known.set(caFile, pools)
  if (known.size > maxAuthorities) known.delete([...known.keys()][0])
  return pools
}

function openPools(caFile: string | undefined): HttpPools {
  const { Agent } = loadUndici()
  const authority = caFile === undefined ? undefined : readAuthority(caFile)
  const agent = (connections: number): Undici.Dispatcher =>
    new Agent({
      factory(target) {
        const url = new URL(target)
        const proxy = proxyFor(url, process.env)
        return connectionPool({ origin: url.origin, proxy, connections, connectTimeoutMs, authority })
      },
    })
  // Tools may use as many descriptors as all backends together; a quarter of them remains for processes and files.
  const left = descriptorBudget()
  return {
    requests: agent(Math.min(maxRequests, processShare(left / 2))),
    streams: agent(Math.min(maxStreams, processShare(left / 4))),
  }
}

/** Fails past `maxBytes`, of the whole or of one event of a stream; an error page is cut. The SDK would read whatever comes. */
export function boundedResponse(response: Undici.Response, maxBytes = maxMessageBytes): Undici.Response {
  if (!response.body) return response
  const isStream = response.headers.get('content-type')?.startsWith('text/event-stream')
  const count = isStream ? eventBytes() : allBytes()
  const body = response.body.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        const bytes = count(chunk)
        if (response.ok && bytes > maxBytes) throw tooLong(maxBytes)
        if (response.ok || bytes <= maxErrorBytes) controller.enqueue(chunk)
        else controller.terminate()
      },
    }),
  )
  const undici = loadUndici()
  return new undici.Response(body, response)
}

function allBytes(): (chunk: Uint8Array) => number {
  let bytes = 0
  return (chunk) => (bytes += chunk.length)
}

/** Counts the bytes since the last empty line, which ends an event; one that two chunks share is not seen. */
function eventBytes(): (chunk: Uint8Array) => number {
  let bytes = 0
  return (chunk) => {
    const text = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.length)
    const end = Math.max(text.lastIndexOf('\n\n'), text.lastIndexOf('\n\r\n'))
    bytes = end === -1 ? bytes + chunk.length : chunk.length - end
    return bytes
  }
}

function tooLong(maxBytes: number): Error {
  return new Error(`the data from the server is larger than ${maxBytes} bytes`)
}
