import {
  type JSONRPCRequest,
  SseError,
  SSEClientTransport,
  StreamableHTTPClientTransport,
  type Transport,
} from '@modelcontextprotocol/client'
import type { Dispatcher } from 'undici'
import { ArraySet, timerMs, within } from '../../../kit/index.ts'
import { sseFailure } from './call-failure.ts'
import { HttpCall } from './_http-call.ts'
import { type HttpPools, httpPools } from './_http-pools.ts'
import type { HttpReply } from './_http-reply.ts'
import type { CallOutcome } from './pending-call.ts'
import { serverFetch } from './server-fetch.ts'
import type { CallRequest, ServerLink } from './server-link.ts'
import type { HttpServerConfig } from '../config/server-config.ts'

/** How long to wait for the server to take the end of a session. It would find out by itself, later. */
const goodbyeMs = 1000

const postHeaders = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' }
const getHeaders = { accept: 'text/event-stream' }

interface CallRequestParts {
  readonly dispatcher: Dispatcher
  readonly method: 'POST' | 'GET'
  readonly headers: Readonly<Record<string, string>>
  readonly body?: string
}

/** A session on a server over HTTP, in the transport that its configuration names. */
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
    const post = { dispatcher: requests, method: 'POST', body: JSON.stringify(message), headers: postHeaders } as const
    return new HttpCall({
      id: message.id,
      post: (reply) => this.#send(post, reply),
      resume: (lastEventId, reply) => {
        this.#send(
          { dispatcher: streams, method: 'GET', headers: { ...getHeaders, 'last-event-id': lastEventId } },
          reply,
        )
      },
      onMessage: (answer) => received.onmessage?.(answer),
      onFailure,
      lingering: this.#lingering,
    })
  }

  close(): Promise<void> {
    return (this.#closing ??= this.#close())
  }

  #send({ dispatcher, method, headers, body }: CallRequestParts, reply: HttpReply): void {
    const { sessionId, protocolVersion } = this.transport
    const session = sessionId === undefined ? {} : { 'mcp-session-id': sessionId }
    const version = protocolVersion === undefined ? {} : { 'mcp-protocol-version': protocolVersion }
    const { origin, pathname, search } = this.#endpoint
    const sent = { ...this.#headers, ...headers, ...session, ...version }
    dispatcher.dispatch({ origin, path: pathname + search, method, headers: sent, body: body ?? null }, reply)
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
    await within(transport.terminateSession(), goodbyeMs)
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
