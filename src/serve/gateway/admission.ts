import { randomBytes } from 'node:crypto'
import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import type { IncomingHttpHeaders, Server } from 'node:http'
import type { Socket } from 'node:net'
import { join } from 'node:path'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { MillraceError } from '../../errors/index.ts'
import { type Caller, type Gateway, refuseSharedKeys } from '../../gateway/index.ts'
import { isLoopback } from '../../kit/index.ts'
import { plainError, refuse } from '../http/errors.ts'
import { keysIn, type OpenResponses, requireKeys, type RequestKeys } from '../http/server.ts'

/** The share of connections that are there only to be told that there is no room: a crowd comes in all at once. */
const overflowShare = 1 / 8
const maxOverflow = 256
/** One of those that asks for nothing makes room for the next. */
const overflowTimeoutMs = 5_000
/** From so much of the budget on, a connection is not kept when its reply has ended. */
const crowdedShare = 0.75

export interface ConnectionFigures {
  readonly connections: number
  readonly maxConnections: number
  /** Requests that were told to come again. */
  readonly turnedAway: number
  readonly dropped: number
}

/**
 * Admits as many clients as there are descriptors for. Some are kept back, so that a request beyond the rest is answered with
 * "come again" instead of a reset.
 */
export class ConnectionAdmission {
  readonly #server: Server
  readonly #maxClients: number
  /** Those in the overflow included; bounded by `maxConnections` of the server. */
  #connections = 0
  readonly #overflow = new Set<Socket>()
  #turnedAway = 0
  #dropped = 0

  /** `maxSockets` is what this server may hold in all. */
  constructor(app: FastifyInstance, maxSockets: number) {
    this.#server = app.server
    this.#maxClients = Math.max(1, maxSockets - Math.min(maxOverflow, Math.ceil(maxSockets * overflowShare)))
    this.#server.maxConnections = maxSockets
    this.#server.on('connection', (socket: Socket) => this.#onConnection(socket))
    this.#server.on('drop', () => (this.#dropped += 1))
    app.addHook('onRequest', (request, reply, next) => {
      if (this.#overflow.has(request.raw.socket)) return this.#turnAway(request, reply)
      // Politely: an idle connection that is closed may be one on which a request is just being sent.
      if (this.#connections > this.#maxClients * crowdedShare) reply.raw.setHeader('connection', 'close')
      return next()
    })
  }

  get figures(): ConnectionFigures {
    return {
      connections: this.#connections,
      maxConnections: this.#maxClients,
      turnedAway: this.#turnedAway,
      dropped: this.#dropped,
    }
  }

  #onConnection(socket: Socket): void {
    this.#connections += 1
    const isBeyond = this.#connections > this.#maxClients
    if (isBeyond) {
      this.#overflow.add(socket)
      socket.setTimeout(overflowTimeoutMs, () => socket.destroy())
    }
    socket.once('close', () => {
      this.#connections -= 1
      this.#overflow.delete(socket)
    })
  }

  /** Once all of the request has come: on a connection that closes with something unread, the answer is lost. */
  #turnAway({ raw }: FastifyRequest, reply: FastifyReply): void {
    this.#turnedAway += 1
    reply.hijack()
    raw.once('end', () => {
      reply.raw.writeHead(full.status, full.headers)
      reply.raw.end(full.body)
    })
    raw.resume()
  }
}

const full = plainError(
  503,
  {
    code: 'overloaded',
    message: 'the gateway has no file descriptor for another connection; try again in a moment',
  },
  { 'retry-after': '1' },
)

/** Ends connections on which nothing moved for as long as was said of them, unless it is we who are slow. */
export function endIdleConnections(server: Server, responses: OpenResponses): void {
  server.on('timeout', (socket: Socket) => {
    if (socket.writableLength > 0 || !responses.on(socket)) socket.destroy()
  })
}

export interface TenantKey {
  readonly tenant: string
  readonly key: string
}

export const defaultTenant = 'default'

const keyFile = 'admin.key'

export function requireAdminKeys(host: string, keys: readonly TenantKey[]): void {
  refuseSharedKeys(keys)
  requireKeys(
    host,
    keys.map(({ tenant, key }) => ({ name: `the key of tenant ${tenant}`, key })),
    'an admin key: set MILLRACE_ADMIN_KEY, or name another variable with --admin-key-env (keys)',
  )
}

/** Clients of NeMo Gym have no key, so nobody else may reach a server for them. */
export function requireOwnMachine(host: string): void {
  if (isLoopback(host)) return
  const message = `with --nemo-gym (nemoGym) requests need no key, so the gateway cannot listen on ${host}: listen on 127.0.0.1, and use a tunnel from other machines (ssh -L 8787:127.0.0.1:8787 <this machine>)`
  throw new MillraceError('config_invalid', message)
}

/** The key that an earlier launch made for this folder, or a new one, readable by its owner alone. */
export function storedAdminKey(folder: string): string {
  const path = join(folder, keyFile)
  const kept = readKept(path)
  if (kept !== undefined) return kept
  const key = `mra-${randomBytes(32).toString('base64url')}`
  try {
    writeFileSync(path, `${key}\n`, { mode: 0o600 })
    // The mode above is only for a file that was not there.
    chmodSync(path, 0o600)
  } catch (error) {
    throw unusable(path, error)
  }
  return key
}

/** What to tell whoever starts a gateway with other keys where it once made its own, which then opens nothing. */
export function unusedKeyNotice(folder: string, keys: readonly TenantKey[]): string | undefined {
  const path = join(folder, keyFile)
  if (keys.length === 0 || !existsSync(path)) return undefined
  const ofDefault = keys.filter(({ tenant }) => tenant === defaultTenant)
  if (ofDefault.length === 0) {
    return `the key in ${path} is no longer valid, because other keys are configured. No key belongs to tenant ${defaultTenant}, so nobody can manage its sessions; to keep the key, start with MILLRACE_ADMIN_KEY=$(cat ${path})`
  }
  if (ofDefault.some(({ key }) => mayBeKept(path, key))) return undefined
  return `the key in ${path} is not valid, because tenant ${defaultTenant} has another key; remove the file`
}

/** Of a file that cannot be read nothing is known, and a gateway that was given its keys starts without it. */
function mayBeKept(path: string, key: string): boolean {
  try {
    return readKept(path) === key
  } catch {
    return true
  }
}

function readKept(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8').trim() || undefined
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw unusable(path, error)
  }
}

/** Another user's, for instance, who ran the gateway here before. */
function unusable(path: string, error: unknown): MillraceError {
  const why = error instanceof Error ? error.message : String(error)
  const message = `the admin key cannot be kept in ${path}: ${why}. Make yourself the owner of the file, or set MILLRACE_ADMIN_KEY`
  return new MillraceError('folder_unwritable', message, { cause: error })
}

declare module 'fastify' {
  interface FastifyRequest {
    caller: Caller | null
  }
}

export function requireCaller(app: FastifyInstance, gateway: Gateway): void {
  app.decorateRequest('caller', null)
  app.addHook('onRequest', (request, reply, next) => {
    request.caller = callerFrom(gateway, request.headers) ?? null
    if (request.caller) next()
    else void refuse(reply, 'unauthorized', keyWanted(keysIn(request.headers)))
  })
}

/** Whose key was sent; one that is known is enough: Anthropic's clients may send a second one, for another server. */
export function callerFrom(gateway: Gateway, headers: IncomingHttpHeaders): Caller | undefined {
  const { bearer, apiKey } = keysIn(headers)
  return gateway.callerFor(bearer) ?? gateway.callerFor(apiKey)
}

export function unauthorized(headers: IncomingHttpHeaders): MillraceError {
  return new MillraceError('model_auth', keyWanted(keysIn(headers)), { data: { status: 401 } })
}

/** A key that was not sent and one that is wrong are mended in different places. */
function keyWanted({ bearer, apiKey }: RequestKeys): string {
  return bearer === undefined && apiKey === undefined
    ? 'send a key of this gateway, as authorization: Bearer <key> or x-api-key: <key>'
    : 'this gateway does not know the key of the request: send an admin key, or the key of a session'
}

/** Behind `requireCaller` there always is one. */
export function callerOf({ caller }: FastifyRequest): Caller {
  if (caller) return caller
  throw new MillraceError('internal', 'a route that needs a key did not check it')
}

export function adminOf(request: FastifyRequest): Caller & { readonly kind: 'admin' } {
  const caller = callerOf(request)
  if (caller.kind === 'admin') return caller
  throw new MillraceError('usage', `${request.method} ${request.url} needs an admin key, not the key of a session`, {
    data: { status: 403 },
  })
}

/** What can stand in a header, a log and a file name. */
const sane = /^[\w.:-]{1,128}$/

const prefix = `req_${randomBytes(6).toString('hex')}`
let made = 0

/** The client's own name for its request if it has a usable one, else a new one: unique among all processes. */
export function requestIdOf(given: string | string[] | undefined): string {
  if (typeof given === 'string' && sane.test(given)) return given
  made += 1
  return `${prefix}${made.toString(36).padStart(6, '0')}`
}
