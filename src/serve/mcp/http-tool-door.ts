import { isInitializeRequest } from '@modelcontextprotocol/server'
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify'
import { MillraceError } from '../../errors/index.ts'
import { AbortScope } from '../../kit/index.ts'
import { Door } from '../_door.ts'
import { refuseUnrouted } from '../_known-routes.ts'
import { refusal, sendWebResponse, webRequest } from './_http-exchange.ts'
import { HttpSession } from './_http-session.ts'
import type { ServedTools } from './served-tools.ts'

const path = '/mcp'
const maxBodyBytes = 4 * 1024 * 1024
/** Each has a state of its own, whatever the environment's `setup` makes of that. */
const defaultMaxSessions = 64
const defaultIdleMs = 10 * 60_000

/** JSON-RPC's codes for what a server refuses in its own words, and for a session it does not know. */
const refused = -32_000
const unknownSession = -32_001

export interface HttpToolDoorOptions {
  readonly tools: ServedTools
  /** What clients are told beside the environment's name. */
  readonly version: string
  /** 0 for any free one. */
  readonly port: number
  /** Sessions at once; 64 if not given. A client beyond them is told to come again. */
  readonly maxSessions?: number
  /** A session that nobody uses for this long ends; 10 minutes if not given. */
  readonly idleMs?: number
  /** Hears of what no client can be told. */
  readonly onFault: (error: unknown) => void
}

/**
 * An environment's tools over Streamable HTTP, for clients on this machine: each of its sessions has a state of its own. Only
 * the revisions of MCP that know sessions are spoken, since a state must belong to somebody.
 */
export class HttpToolDoor extends Door {
  readonly #options: HttpToolDoorOptions
  readonly #sessions = new Map<string, HttpSession>()
  readonly #maxSessions: number
  /** Being set up; they count as sessions. */
  readonly #opening = new Set<Promise<HttpSession | Response>>()

  private constructor(options: HttpToolDoorOptions) {
    // Whoever can call tools can do what they do, so only this machine is let in.
    super('127.0.0.1', {
      isKeyless: true,
      refusalBody: ({ message }) => JSON.stringify({ jsonrpc: '2.0', error: { code: refused, message }, id: null }),
    })
    this.#options = options
    this.#maxSessions = options.maxSessions ?? defaultMaxSessions
    const { app } = this
    app.setNotFoundHandler(async (request, reply) => {
      return await refuseUnrouted(
        reply,
        this.knownRoutes.unrouted(request, () => `MCP is at ${path}`),
      )
    })
    app.setErrorHandler<FastifyError>(async (error, _request, reply) => {
      const { statusCode = 500, message } = error
      if (statusCode >= 500) options.onFault(error)
      return await reply.code(statusCode).send({ jsonrpc: '2.0', error: { code: refused, message }, id: null })
    })
    app.route({
      method: ['GET', 'POST', 'DELETE'],
      url: path,
      bodyLimit: maxBodyBytes,
      handler: async (request, reply) => await this.#answer(request, reply),
    })
  }

  static async open(options: HttpToolDoorOptions): Promise<HttpToolDoor> {
    const door = new HttpToolDoor(options)
    await door.listen(options.port, '--http (port)')
    return door
  }

  /** Where clients find it. */
  override get url(): string {
    return `${super.url}${path}`
  }

  get sessions(): number {
    return this.#sessions.size
  }

  protected override async onClose(): Promise<void> {
    // Their streams of events would otherwise keep the door open.
    await Promise.all([...Array.from(this.#sessions.values(), (session) => session.end()), ...this.#opening])
    await super.onClose()
  }

  async #answer(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const asked = webRequest(request)
    reply.hijack()
    const send = (response: Response): Promise<void> => sendWebResponse(response, reply.raw)
    const { body } = request
    const id = asked.headers.get('mcp-session-id')
    const session = id === null ? await this.#opened(body, reply) : this.#sessions.get(id)
    if (session instanceof Response) return await send(session)
    if (!session) return await send(refusal(404, unknownSession, 'there is no such session, or it has ended'))
    await session.answer({ request: asked, body }, send)
  }

  /** A session for a client that begins one, or why there is none. */
  #opened(body: unknown, reply: FastifyReply): Response | Promise<HttpSession | Response> {
    if (!isInitializeRequest(body)) {
      return refusal(400, refused, 'begin with `initialize`, and send the mcp-session-id you are given from then on')
    }
    if (this.#sessions.size + this.#opening.size >= this.#maxSessions) {
      return refusal(
        503,
        refused,
        `there are ${this.#maxSessions} sessions, which is the limit; end one, or come again`,
      )
    }
    const opening = this.#open(reply).finally(() => this.#opening.delete(opening))
    this.#opening.add(opening)
    return opening
  }

  /** Never rejects. Whoever has gone, or finds the door closing, leaves nothing behind when it resolves. */
  async #open(reply: FastifyReply): Promise<HttpSession | Response> {
    const { tools, version, idleMs = defaultIdleMs, onFault } = this.#options
    using scope = new AbortScope(this.closedSignal)
    const onGone = (): void => scope.abort(new MillraceError('cancelled', 'the client has gone'))
    reply.raw.once('close', onGone)
    try {
      const session = await HttpSession.open({ tools, version, idleMs, onFault, signal: scope.signal })
      if (this.isClosed) {
        await session.end()
        throw this.closedSignal.reason
      }
      this.#sessions.set(session.id, session)
      session.closedSignal.addEventListener('abort', () => this.#sessions.delete(session.id), { once: true })
      return session
    } catch (error) {
      return refusal(500, refused, MillraceError.from(error, 'setup_failed').rawMessage)
    } finally {
      reply.raw.off('close', onGone)
    }
  }
}
