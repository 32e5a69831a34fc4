import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
import { MillraceError } from '../../../errors/index.ts'
import { type Caller, type Gateway, gatewayEvents, sessionPrefix } from '../../../gateway/index.ts'
import { HostCheck } from '../../../kit/index.ts'
import type { GatewayBounds } from '../../gateway/gateway-config.ts'
import { keysIn } from '../../http/server.ts'
import type { CookieSession, SessionCookies } from './session-cookie.ts'

interface CookieSessionsOptions {
  readonly gateway: Gateway
  /** Whose sessions they are. */
  readonly tenant: string
  /** What the server listens on. */
  readonly host: string
  readonly cookies: SessionCookies
  readonly bounds: Pick<GatewayBounds, 'maxCookieSessions' | 'cookieSessionIdleMs'>
}

/** A request under way. The session is in use until this is disposed. */
interface CookieUse extends Disposable {
  readonly caller: Caller
}

/** Keys of ours, which somebody meant to be known here. */
const ownKey = new RegExp(`^(${sessionPrefix}|mra-)`)

/**
 * The sessions of clients that have a cookie instead of a key. The cookie is the name of a session of the gateway, signed: nothing
 * else has to be remembered of it. A request whose session has ended gets a new one.
 */
export class CookieSessions implements AsyncDisposable {
  readonly cookies: SessionCookies
  readonly #options: CookieSessionsOptions
  readonly #hosts: HostCheck
  readonly #owner: Caller
  /** How many requests are under way, by session. */
  readonly #requests = new Map<string, number>()
  /** Those without a request under way. A Set iterates in insertion order, so the first is the least recently used. */
  readonly #idle = new Set<string>()
  readonly #ending = new Set<Promise<unknown>>()
  readonly #listening: Disposable

  constructor(options: CookieSessionsOptions) {
    const { gateway, tenant, host, cookies } = options
    this.cookies = cookies
    this.#options = options
    this.#hosts = new HostCheck(host)
    this.#owner = { kind: 'admin', tenant }
    this.#listening = gatewayEvents.subscribe((event) => {
      if (event.kind === 'session-end' && event.folder === gateway.folder) this.#forget(event.session)
    })
  }

  /** Whether a request whose key nobody knows may be one of these: clients that insist on a key send any word. */
  takes(headers: IncomingHttpHeaders): boolean {
    const { bearer = '', apiKey = '' } = keysIn(headers)
    return !ownKey.test(bearer) && !ownKey.test(apiKey)
  }

  /** Why a request that needs no key is refused all the same: a web page may have sent it. */
  refusal(headers: IncomingHttpHeaders): string | undefined {
    return this.#hosts.refusal(headers)
  }

  /** Begins a request: in the session that it names if that is open, else in a new one. Whatever the reply will be, it has the cookie. */
  async use({ headers }: IncomingMessage, response: ServerResponse): Promise<CookieUse> {
    const named = this.#mark(response, this.cookies.session(headers.cookie))
    const refusal = this.refusal(headers)
    if (refusal !== undefined) throw new MillraceError('usage', refusal, { data: { status: 403 } })
    const { gateway, tenant } = this.#options
    const isOpen = !named.isNew && gateway.isOpenSession(this.#owner, named.id)
    const { id } = isOpen ? named : this.#mark(response, { id: await this.#start(), isNew: true })
    this.#idle.delete(id)
    this.#requests.set(id, (this.#requests.get(id) ?? 0) + 1)
    this.#makeRoom()
    return { caller: { kind: 'session', tenant, sessionId: id }, [Symbol.dispose]: () => this.#rest(id) }
  }

  async #start(): Promise<string> {
    const { gateway, bounds } = this.#options
    const options = { ttlSeconds: bounds.cookieSessionIdleMs / 1000, metadata: { client: 'nemo-gym' } }
    const { sessions } = await gateway.startSessions(this.#owner, options)
    const [session] = sessions
    if (session) return session.id
    throw new MillraceError('internal', 'no session was started for a cookie')
  }

  #mark(response: ServerResponse, session: CookieSession): CookieSession {
    for (const [name, value] of Object.entries(this.cookies.headers(session))) response.setHeader(name, value)
    return session
  }

  #rest(id: string): void {
    const others = (this.#requests.get(id) ?? 0) - 1
    if (others > 0) this.#requests.set(id, others)
    // It may have ended meanwhile.
    else if (this.#requests.delete(id) && this.#options.gateway.isOpenSession(this.#owner, id)) this.#idle.add(id)
    this.#makeRoom()
  }

  /** Nobody says when a client has gone for good: beyond the bound, the sessions end that were not used for longest. */
  #makeRoom(): void {
    const { gateway, bounds } = this.#options
    for (const id of this.#idle) {
      if (this.#idle.size + this.#requests.size <= bounds.maxCookieSessions) return
      this.#idle.delete(id)
      // One that cannot be ended expires.
      const ending = gateway.endSession(this.#owner, id).catch(() => {})
      this.#ending.add(ending)
      void ending.finally(() => this.#ending.delete(ending))
    }
  }

  #forget(id: string): void {
    this.#requests.delete(id)
    this.#idle.delete(id)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#ending)
    this.#listening[Symbol.dispose]()
  }
}
