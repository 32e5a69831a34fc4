import { availableParallelism } from 'node:os'
import { isMainThread } from 'node:worker_threads'
import { MillraceError } from '../errors/index.ts'
import { Connections, descriptorBudget, networkCause } from '../http/index.ts'
import { backoffMs, sleep } from '../kit/index.ts'

/** As many as NeMo Gym's own client opens to one server. More requests than connections wait. */
const maxConnections = 1024
const connectTimeoutMs = 10_000
/** How often one request is made, as long as it is certain that the server did nothing. */
const maxTries = 4
const backoff = { firstMs: 250, maxMs: 2_000, factor: 2 }
/** The longest reply that is read: a verifier repeats the whole row and response. */
const maxReplyBytes = 128 * 1024 * 1024
const maxCookies = 64
/** How much of a reply is shown in an error. */
const maxShownChars = 400

/** A request that failed with one of these never reached a server. */
const beforeConnected: ReadonlySet<string> = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EADDRNOTAVAIL',
  'UND_ERR_CONNECT_TIMEOUT',
])
/** Statuses of a server, or a proxy before it, that has no time just now. */
const busyStatuses: ReadonlySet<number> = new Set([429, 502, 503, 504])

interface Reply {
  readonly status: number
  readonly text: string
}

interface SharedConnections {
  readonly connections: Connections
  users: number
}

/** The connections of this thread, by origin: open as long as a session uses them. */
const shared = new Map<string, SharedConnections>()

function takeConnections(url: URL): SharedConnections {
  let taken = shared.get(url.origin)
  if (!taken) {
    // Models have the other half. How many threads there are is not known here: as many as there are processors, or one.
    const workers = isMainThread ? 1 : availableParallelism()
    const share = Math.floor(descriptorBudget({ workers }) / (2 * (shared.size + 1)))
    const connections = Math.max(1, Math.min(maxConnections, share))
    const options = { url, connections, connectTimeoutMs, caFile: undefined, env: process.env }
    taken = { connections: new Connections(options), users: 0 }
    shared.set(url.origin, taken)
  }
  taken.users += 1
  return taken
}

async function giveBack(url: URL, taken: SharedConnections): Promise<void> {
  taken.users -= 1
  if (taken.users > 0) return
  shared.delete(url.origin)
  await taken.connections.close()
}

/**
 * One session with a resources server of NeMo Gym: its cookies, and the requests of one rollout. Its cookies stay until the
 * server replaces them, also after an error without cookies, so that a tool that fails does not lose the session.
 */
export class ResourcesSession implements AsyncDisposable {
  readonly #url: URL
  readonly #connections: SharedConnections
  readonly #cookies = new Map<string, string>()
  #retries = 0
  #isClosed = false

  constructor(url: string) {
    this.#url = new URL(url)
    this.#connections = takeConnections(this.#url)
  }

  /** How many requests were made again. */
  get retries(): number {
    return this.#retries
  }

  /** Begins the session. It may be asked for twice: a session that nobody knows of does nothing. */
  async seed(row: string, signal: AbortSignal): Promise<void> {
    const { status, text } = await this.#post('seed_session', row, { signal, mayRepeat: true })
    if (isSuccess(status)) return
    throw new MillraceError('setup_failed', `${this.#shown('seed_session')} answers ${status}: ${excerpt(text)}`)
  }

  /** Calls a tool. Its reply is for the model, whatever the status is. */
  async tool(name: string, args: string | undefined, signal: AbortSignal): Promise<Reply> {
    return await this.#post(encodeURIComponent(name), args, { signal, mayRepeat: false })
  }

  /** The verifier's reply as text. */
  async verify(body: string, signal: AbortSignal): Promise<string> {
    const { status, text } = await this.#post('verify', body, { signal, mayRepeat: false })
    if (isSuccess(status)) return text
    throw new MillraceError('reward_failed', `${this.#shown('verify')} answers ${status}: ${excerpt(text)}`)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    await giveBack(this.#url, this.#connections)
  }

  async #post(
    path: string,
    body: string | undefined,
    { signal, mayRepeat }: { readonly signal: AbortSignal; readonly mayRepeat: boolean },
  ): Promise<Reply> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        const reply = await this.#send(path, body, signal)
        if (!mayRepeat || attempt === maxTries || !busyStatuses.has(reply.status)) return reply
      } catch (error) {
        signal.throwIfAborted()
        const { code, message } = networkCause(error)
        const mayTryAgain = mayRepeat || beforeConnected.has(code)
        if (!mayTryAgain || attempt === maxTries) throw unreachable(this.#shown(path), message, error)
      }
      this.#retries += 1
      await sleep(backoffMs(backoff, attempt), signal)
    }
  }

  async #send(path: string, body: string | undefined, signal: AbortSignal): Promise<Reply> {
    const cookies = Array.from(this.#cookies, ([name, value]) => `${name}=${value}`).join('; ')
    const headers = { 'content-type': 'application/json', ...(cookies !== '' && { cookie: cookies }) }
    const request = { method: 'POST', headers, ...(body !== undefined && { body }) } as const
    const url = at(this.#url, path)
    const send = (to: URL): ReturnType<typeof exchange> =>
      exchange(this.#connections.connections, to, { ...request, signal })
    let { setCookies, location, ...reply } = await send(url)
    const target = redirected(reply.status, location, url)
    if (target) ({ setCookies, location, ...reply } = await send(target))
    for (const cookie of setCookies) this.#keep(cookie)
    return reply
  }

  #keep(cookie: string): void {
    const [pair = '', ...attributes] = cookie.split(';')
    const end = pair.indexOf('=')
    if (end < 1) return
    const name = pair.slice(0, end).trim()
    if (attributes.some((each) => /^\s*(max-age=(0|-\d+)|expires=.*\b1970\b.*)\s*$/i.test(each)))
      this.#cookies.delete(name)
    else if (this.#cookies.has(name) || this.#cookies.size < maxCookies)
      this.#cookies.set(name, pair.slice(end + 1).trim())
  }

  #shown(path: string): string {
    return `the resources server ${at(this.#url, path).href}`
  }
}

export function isSuccess(status: number): boolean {
  return status >= 200 && status < 300
}

/** Where a request is sent on to, as NeMo Gym's servers do for a slash at the end of a path; only within the same server. */
function redirected(status: number, location: string | undefined, url: URL): URL | undefined {
  if ((status !== 307 && status !== 308) || location === undefined || !URL.canParse(location, url.href))
    return undefined
  const target = new URL(location, url)
  return target.origin === url.origin ? target : undefined
}

/** Rejects with `tool_infra` if a server does not answer at all. */
export async function requireServer(url: string, signal?: AbortSignal): Promise<void> {
  await get(new URL(url), signal)
}

/** The text at an address. */
export async function fetchText(url: URL, signal?: AbortSignal): Promise<string> {
  const { status, text } = await get(url, signal)
  if (status < 400) return text
  throw new MillraceError('config_invalid', `${url.href} answers ${status}: ${excerpt(text)}; check the address`)
}

const getTimeoutMs = 30_000

async function get(url: URL, signal?: AbortSignal): Promise<Reply> {
  const options = { url, connections: 1, connectTimeoutMs, caFile: undefined, env: process.env }
  await using connections = new Connections(options)
  const late = AbortSignal.timeout(getTimeoutMs)
  try {
    const both = signal ? AbortSignal.any([signal, late]) : late
    return await exchange(connections, url, { method: 'GET', headers: {}, signal: both })
  } catch (error) {
    signal?.throwIfAborted()
    throw unreachable(url.href, late.aborted ? 'no answer in time' : networkCause(error).message, error)
  }
}

async function exchange(
  connections: Connections,
  url: URL,
  request: {
    readonly method: 'GET' | 'POST'
    readonly headers: Record<string, string>
    readonly body?: string
    readonly signal: AbortSignal
  },
): Promise<Reply & { readonly setCookies: readonly string[]; readonly location: string | undefined }> {
  const shard = connections.pick()
  shard.busy += 1
  try {
    const { origin, pathname, search } = url
    const answer = await shard.dispatcher.request({ origin, path: pathname + search, ...request })
    const chunks: Buffer[] = []
    let bytes = 0
    for await (const chunk of answer.body as AsyncIterable<Buffer>) {
      bytes += chunk.length
      if (bytes > maxReplyBytes) throw new Error(`the reply is larger than ${maxReplyBytes} bytes`)
      chunks.push(chunk)
    }
    const { 'set-cookie': cookies = [], location } = answer.headers
    return {
      status: answer.statusCode,
      text: Buffer.concat(chunks).toString(),
      setCookies: [cookies].flat(),
      location: [location].flat()[0],
    }
  } finally {
    shard.busy -= 1
  }
}

/** A server's address may have a path of its own. */
function at(url: URL, path: string): URL {
  return new URL(`${url.pathname.replace(/\/$/, '')}/${path}`, url)
}

function unreachable(what: string, why: string, cause: unknown): MillraceError {
  const message = `${what} cannot be reached: ${why}. Start it, or correct its address`
  return new MillraceError('tool_infra', message, { cause })
}

function excerpt(text: string): string {
  return text.length > maxShownChars ? `${text.slice(0, maxShownChars)}…` : text
}
