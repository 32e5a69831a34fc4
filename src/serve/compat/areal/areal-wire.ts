import { randomBytes } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import type { ServerDialect } from '../../../apis/index.ts'
import { type Caller, type Gateway, sessionPrefix } from '../../../gateway/index.ts'
import { Secret } from '../../../kit/index.ts'
import type { RunStore } from '../../../store/index.ts'
import type { GatewayBounds } from '../../gateway/gateway-config.ts'
import { keysIn } from '../../http/server.ts'
import { ArealExports } from './areal-exports.ts'
import { ArealSessions } from './areal-sessions.ts'
import { arealDialect } from './chat-dialect.ts'
import { ShardStore } from './shard-store.ts'
import { noKey, notAdmin, type StatusRule, unknownKey } from './wire-errors.ts'

export interface ArealOptions {
  /** Whether errors have honest statuses instead of AReaL's own. Default: false. */
  readonly strict?: boolean | undefined
  /** Whether exports have tensors in them, or references to tensors that clients fetch. Default: `inline`. */
  readonly tensors?: 'inline' | 'reference' | undefined
}

interface ArealWireOptions extends ArealOptions {
  readonly gateway: Gateway
  readonly store: RunStore
  readonly bounds: Pick<GatewayBounds, 'maxTensorBytes' | 'maxShardBytes' | 'shardMs'>
  /** Where clients reach it, if that is not what they send as `host`. */
  readonly publicUrl: string | undefined
}

export type Admin = Caller & { readonly kind: 'admin' }

/** A request under way. */
interface ArealUse extends Disposable {
  readonly caller: Caller
}

const maxRegistered = 1024

/** AReaL's gateway, router and data proxies in one: who calls, and what all of its routes share. */
export class ArealWire implements AsyncDisposable {
  readonly rule: StatusRule
  readonly dialect: ServerDialect
  readonly sessions: ArealSessions
  readonly exports: ArealExports
  readonly shards: ShardStore
  readonly #options: ArealWireOptions
  /** By tenant: what fetches tensors, and nothing else. AReaL's clients send no other key for that. */
  readonly #dataKeys = new Map<string, { readonly key: string; readonly secret: Secret }>()
  /** Names of models that clients have announced. */
  readonly #registered = new Set<string>()
  readonly #deliveries = new Set<Promise<void>>()

  constructor(options: ArealWireOptions) {
    const { gateway, store, bounds, strict = false } = options
    this.#options = options
    this.rule = { strict }
    this.dialect = arealDialect(this.rule, (name) => gateway.modelNameFor(name))
    this.sessions = new ArealSessions({ gateway, store })
    this.shards = new ShardStore({ maxBytes: bounds.maxShardBytes, keepMs: bounds.shardMs })
    const { maxTensorBytes } = bounds
    this.exports = new ArealExports({ store, sessions: this.sessions, shards: this.shards, strict, maxTensorBytes })
  }

  /** Whether a request to a route that others use, too, is one of AReaL's clients: its key is of a session, in AReaL's form. */
  takes(headers: IncomingHttpHeaders): boolean {
    const token = tokenIn(headers)
    if (token === undefined || token.startsWith(sessionPrefix)) return false
    return this.#options.gateway.callerFor(token)?.kind === 'session'
  }

  caller(headers: IncomingHttpHeaders): Caller {
    const token = tokenIn(headers)
    if (token === undefined) throw noKey()
    const caller = this.#options.gateway.callerFor(token)
    if (caller) return caller
    throw unknownKey()
  }

  admin(headers: IncomingHttpHeaders): Admin {
    const token = tokenIn(headers)
    if (token === undefined) throw noKey()
    const caller = this.#options.gateway.callerFor(token)
    if (caller?.kind === 'admin') return caller
    throw notAdmin()
  }

  /** The session that a request for a model belongs to. Without waiting, if it has a session's key. */
  enter(headers: IncomingHttpHeaders): ArealUse | Promise<ArealUse> {
    const caller = this.caller(headers)
    return caller.kind === 'session' ? useOf(caller) : this.#enterOnline(caller)
  }

  async #enterOnline({ tenant, ...caller }: Admin): Promise<ArealUse> {
    const sessionId = await this.sessions.sessionOf({ tenant, ...caller })
    return useOf({ kind: 'session', tenant, sessionId })
  }

  /** Whose tensors a request may read. */
  tensorTenant(headers: IncomingHttpHeaders): string {
    const user = basicUser(headers.authorization)
    if (user === undefined) return this.admin(headers).tenant
    const sent = new Secret(user)
    for (const [tenant, { secret }] of this.#dataKeys) if (secret.equals(sent)) return tenant
    throw unknownKey()
  }

  /** Where the client of this request fetches tensors from; undefined if it is sent them whole. */
  tensorAddress(tenant: string, host: string): string | undefined {
    const { tensors, publicUrl } = this.#options
    if (tensors !== 'reference') return undefined
    // Clients fetch over http, and know no paths.
    const url = URL.parse(publicUrl ?? `http://${host}`)
    if (url?.protocol !== 'http:' || url.pathname !== '/') return undefined
    const key = this.#dataKeys.get(tenant)?.key ?? this.#newDataKey(tenant)
    return `${key}@${url.host}`
  }

  #newDataKey(tenant: string): string {
    const key = randomBytes(32).toString('base64url')
    this.#dataKeys.set(tenant, { key, secret: new Secret(key) })
    return key
  }

  get models(): string[] {
    return [...new Set([...this.#options.gateway.models().map(({ id }) => id), ...this.#registered])]
  }

  /** Lets a name stand for the first model, as any unknown name does. False if there is no model. */
  register(model: string): boolean {
    if (this.#options.gateway.modelNameFor(model) === undefined) return false
    if (this.#registered.size < maxRegistered) this.#registered.add(model)
    return true
  }

  /** Work after a reply, which nobody waits for. It is done before the gateway closes. */
  afterDelivery(work: Promise<void>): void {
    this.#deliveries.add(work)
    void work.finally(() => this.#deliveries.delete(work))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#deliveries)
    this.shards[Symbol.dispose]()
  }
}

function useOf(caller: Caller): ArealUse {
  return { caller, [Symbol.dispose]: () => {} }
}

function tokenIn(headers: IncomingHttpHeaders): string | undefined {
  const { bearer, apiKey } = keysIn(headers)
  return bearer?.trim() ?? apiKey
}

/** The user of basic authorization, which clients send if an address has a name before its host. */
function basicUser(authorization = ''): string | undefined {
  const [, encoded] = /^basic +([\w+/=-]+)$/i.exec(authorization) ?? []
  if (encoded === undefined) return undefined
  return Buffer.from(encoded, 'base64').toString('latin1').split(':', 1)[0]
}
