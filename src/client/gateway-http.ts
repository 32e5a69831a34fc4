import type { Dispatcher } from 'undici'
import { type ErrorCode, errorCodes, MillraceError } from '../errors/index.ts'
import {
  connectionPool,
  networkCause,
  permanentFailure,
  proxyFor,
  readAuthority,
  type ResponseHeaders,
  retryAfterMs,
  retryAfterOf,
} from '../http/index.ts'
import {
  AbortScope,
  ArraySet,
  type Backoff,
  backoffMs,
  isJsonObject,
  jsonOrText,
  Resource,
  sleep,
} from '../kit/index.ts'
import type { FleetReply } from '../serve/index.ts'

export interface GatewayClientOptions {
  /** The gateway's address, without `/v1`. */
  readonly url: string
  /** An admin key. */
  readonly key: string
  /** How long one request may take. Default: a minute. */
  readonly timeoutMs?: number
  /** How long a request is repeated that fails because the gateway is away or full. Default: two minutes; 0 asks once. */
  readonly retryForMs?: number
  /** The most requests at once; others wait. Default: 64. */
  readonly connections?: number
  /** A file with the certificate authority to trust. */
  readonly caFile?: string
}

export interface GatewayCall {
  readonly body?: object
  readonly signal?: AbortSignal | undefined
  readonly timeoutMs?: number
  readonly retryForMs?: number
  /** Whether asking twice is the same as asking once. If not, it is repeated only if the gateway did nothing. Default: true. */
  readonly isRepeatable?: boolean
}

/** Some backends of a gateway did not do what they were told. The others did. */
export class BackendsFailed extends MillraceError {
  /** The answers of all of them, of those that did it, too. */
  readonly backends: FleetReply['backends']

  constructor(where: string, { backends, epoch }: FleetReply) {
    const failed = backends
      .filter(({ ok }) => !ok)
      .map(({ backend, error = 'no reason given' }) => `${backend}: ${error}`)
    const message = `${where}: ${failed.length} of ${backends.length} backends failed: ${failed.join('; ')}`
    super('backends_failed', message, { data: { failed: failed.length, ...(epoch !== undefined && { epoch }) } })
    this.backends = backends
  }
}

const defaultTimeoutMs = 60_000
const defaultRetryForMs = 120_000
const defaultConnections = 64
const pauses: Backoff = { firstMs: 100, factor: 2, maxMs: 2000 }

/** Of statuses that say that the gateway, or a proxy before it, cannot answer now. */
const awayStatuses: ReadonlySet<number> = new Set([502, 503, 504])
/** Of errors with which nothing was sent. */
const unsentCodes: ReadonlySet<string> = new Set([
  'ECONNREFUSED',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOTFOUND',
  'EAI_AGAIN',
  'UND_ERR_CONNECT_TIMEOUT',
])

/** Requests to one gateway over one pool, repeated while it is away. */
export class GatewayHttp extends Resource {
  readonly timeoutMs: number
  readonly #origin: string
  /** Of the address, without a slash at its end. */
  readonly #prefix: string
  readonly #headers: Readonly<Record<string, string>>
  readonly #retryForMs: number
  readonly #pool: Dispatcher
  readonly #calls = new ArraySet<AbortScope>()

  constructor({ url, key, caFile, ...options }: GatewayClientOptions) {
    super()
    const { timeoutMs = defaultTimeoutMs, retryForMs = defaultRetryForMs, connections = defaultConnections } = options
    this.timeoutMs = timeoutMs
    this.#retryForMs = retryForMs
    const address = gatewayUrl(url)
    this.#origin = address.origin
    this.#prefix = address.pathname.replace(/\/+$/, '')
    this.#headers = { authorization: `Bearer ${key}`, accept: 'application/json' }
    this.#pool = connectionPool({
      origin: address.origin,
      proxy: proxyFor(address, process.env),
      connections,
      connectTimeoutMs: Math.min(timeoutMs, 10_000),
      authority: caFile === undefined ? undefined : readAuthority(caFile),
    })
  }

  /** A call whose reply is a JSON object, which has the shape that the route's schema says. */
  async call<Reply extends object>(method: 'GET' | 'POST', path: string, call: GatewayCall = {}): Promise<Reply> {
    const { signal, retryForMs = this.#retryForMs } = call
    this.throwIfClosed()
    using scope = new AbortScope(signal)
    this.#calls.add(scope)
    const endsAt = performance.now() + retryForMs
    try {
      for (let tries = 1; ; tries += 1) {
        scope.signal.throwIfAborted()
        try {
          return await this.#ask<Reply>(method, path, { ...call, signal: scope.signal })
        } catch (error) {
          const waitMs = Math.max(backoffMs(pauses, tries), retryAfterOf(error) ?? 0)
          if (!mayRepeat(error, call) || performance.now() + waitMs > endsAt) throw error
          await sleep(waitMs, scope.signal)
        }
      }
    } finally {
      this.#calls.delete(scope)
    }
  }

  protected async onClose(): Promise<void> {
    for (const call of this.#calls) call.abort(this.closedSignal.reason)
    await this.#pool.destroy(new MillraceError('closed', 'the client of the gateway is closed'))
  }

  async #ask<Reply extends object>(method: 'GET' | 'POST', path: string, call: GatewayCall): Promise<Reply> {
    const { body, timeoutMs = this.timeoutMs } = call
    const origin = this.#origin
    const target = this.#prefix + path
    const where = `${method} ${origin}${target}`
    const late = (): MillraceError =>
      new MillraceError('gateway_unreachable', `${where}: no answer within ${timeoutMs / 1000} s`)
    using scope = new AbortScope(call.signal, timeoutMs, late)
    const { status, headers, text } = await this.#exchange({
      origin,
      path: target,
      method,
      headers: { ...this.#headers, ...(body && { 'content-type': 'application/json' }) },
      body: body ? JSON.stringify(body) : null,
      signal: scope.signal,
    }).catch((error: unknown) => {
      throw scope.signal.aborted ? scope.signal.reason : networkFailure(error, where)
    })
    const reply = jsonOrText(text)
    if (status === 502 && isFleetReply(reply)) throw new BackendsFailed(where, reply)
    if (status >= 300) throw refusal({ status, headers, reply, where })
    if (isJsonObject(reply)) return reply as Reply
    const message = `${where} did not answer with JSON. Is it the address of a Millrace gateway?`
    throw new MillraceError('gateway_refused', message, { data: { status } })
  }

  async #exchange(
    options: Dispatcher.RequestOptions,
  ): Promise<{ readonly status: number; readonly headers: ResponseHeaders; readonly text: string }> {
    const { statusCode, headers, body } = await this.#pool.request(options)
    return { status: statusCode, headers, text: await body.text() }
  }
}

function gatewayUrl(text: string): URL {
  const url = URL.parse(text)
  if (!url || !/^https?:$/.test(url.protocol)) {
    const message = `"${text}" is not the address of a gateway. Write it like http://127.0.0.1:8787.`
    throw new MillraceError('config_invalid', message)
  }
  return url
}

function mayRepeat(error: unknown, { isRepeatable = true, signal }: GatewayCall): boolean {
  if (!(error instanceof MillraceError) || !error.retryable || signal?.aborted) return false
  const { status, isUnsent } = error.data
  return isRepeatable || isUnsent === true || status === 429 || status === 503
}

function networkFailure(error: unknown, where: string): MillraceError {
  const permanent = permanentFailure(error)
  if (permanent !== undefined) return new MillraceError('gateway_refused', `${where}: ${permanent}`, { cause: error })
  const { code, message } = networkCause(error)
  const data = unsentCodes.has(code) ? { isUnsent: true } : {}
  return new MillraceError('gateway_unreachable', `${where}: ${message}. Is the gateway running?`, {
    data,
    cause: error,
  })
}

interface Refusal {
  readonly status: number
  readonly headers: ResponseHeaders
  readonly reply: unknown
  readonly where: string
}

function refusal({ status, headers, reply, where }: Refusal): MillraceError {
  const error = isJsonObject(reply) && isJsonObject(reply['error']) ? reply['error'] : {}
  const { code, message, data } = error
  const said = typeof message === 'string' ? message : `${where} answered ${status}`
  const waitMs = retryAfterMs(headers)
  const known = {
    ...(isJsonObject(data) && (data as MillraceError['data'])),
    status,
    ...(typeof code === 'string' && { code }),
    ...(waitMs !== undefined && { retryAfterMs: waitMs }),
  }
  return new MillraceError(refusalCode(status, code), said, { data: known })
}

function refusalCode(status: number, code: unknown): ErrorCode {
  if (awayStatuses.has(status)) return 'gateway_unreachable'
  if (status === 429) return 'overloaded'
  return typeof code === 'string' && Object.hasOwn(errorCodes, code) ? (code as ErrorCode) : 'gateway_refused'
}

function isFleetReply(reply: unknown): reply is FleetReply {
  return isJsonObject(reply) && Array.isArray(reply['backends'])
}
