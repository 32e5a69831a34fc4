import { createHmac, randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

/** One request as it came, its body unparsed. */
export interface SeenRequest {
  readonly path: string
  readonly cookie: string | undefined
  readonly body: string
}

interface Faults {
  /** How many requests to a path are answered in this way before it works. */
  readonly [path: string]: { count: number; readonly with: 'cut' | 'hang' | number }
}

const cookieName = 'CounterServer___counter'

/**
 * A resources server in NeMo Gym's protocol, as its example_session_state_mgmt: a counter per session cookie, whose row says where
 * it begins and where it must end. As there, a 500 has no cookie.
 */
export class CounterServer implements AsyncDisposable {
  readonly requests: SeenRequest[] = []
  readonly counters = new Map<string, number>()
  /** Requests whose client left before the reply. */
  left = 0
  /** What `/verify` says in place of the counter, by the number of the request. */
  verifier: ((request: number) => object) | undefined
  readonly #faults: Faults
  readonly #http: Server

  private constructor(faults: Faults) {
    this.#faults = faults
    this.#http = createServer((request, response) => void this.#answer(request, response))
  }

  static async start(faults: Faults = {}): Promise<CounterServer> {
    const server = new CounterServer(faults)
    server.#http.listen(0, '127.0.0.1')
    await once(server.#http, 'listening')
    return server
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`
  }

  get port(): number {
    return (this.#http.address() as AddressInfo).port
  }

  async connections(): Promise<number> {
    const { promise, resolve } = Promise.withResolvers<number>()
    this.#http.getConnections((_error, count) => resolve(count))
    return await promise
  }

  /** The bodies that a path was sent. */
  bodies(path: string): string[] {
    return this.requests.filter((each) => each.path === path).map(({ body }) => body)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#http.closeAllConnections()
    this.#http.close()
    await once(this.#http, 'close')
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = request.url ?? '/'
    const body = Buffer.concat(await request.toArray()).toString()
    const { cookie } = request.headers
    if (request.method === 'POST') this.requests.push({ path, cookie, body })
    const fault = this.#faults[path]
    if (fault && fault.count > 0) {
      fault.count -= 1
      if (fault.with === 'cut') return void request.socket.destroy()
      if (fault.with === 'hang') return void response.once('close', () => (this.left += 1))
      // A redirection is to the same path, which works then.
      const headers = { 'content-type': 'application/json', ...(fault.with < 400 && { location: path }) }
      return void response.writeHead(fault.with, headers).end('"broken"')
    }
    const session = sessionIn(cookie) ?? randomUUID()
    response.setHeader(
      'set-cookie',
      `${cookieName}=${signed(session)}; path=/; Max-Age=1209600; httponly; samesite=lax`,
    )
    const [status, reply] = this.#reply(path, session, body)
    response.writeHead(status, { 'content-type': 'application/json' }).end(reply)
  }

  #reply(path: string, session: string, body: string): [status: number, body: string] {
    const count = this.counters.get(session) ?? 0
    switch (path) {
      case '/seed_session': {
        const { initial_count: initial } = JSON.parse(body) as { readonly initial_count?: number }
        if (initial === undefined) return [422, '{"detail":[{"type":"missing","loc":["body","initial_count"]}]}']
        this.counters.set(session, initial)
        return [200, '{}']
      }
      case '/increment_counter':
        this.counters.set(session, count + (JSON.parse(body) as { readonly count: number }).count)
        return [200, '{"success":true}']
      case '/get_counter_value':
        return [200, `{"count":${count}}`]
      case '/verify': {
        const said = this.verifier?.(this.bodies(path).length)
        if (said) return [200, JSON.stringify({ ...(JSON.parse(body) as object), ...said })]
        const { expected_count: expected } = JSON.parse(body) as { readonly expected_count: number }
        const reward = count === expected ? '1.0' : '0.0'
        // The text of the request, so that no number in it changes.
        return [
          200,
          `${body.slice(0, -1)},"reward":${reward},"counted":${count},"was_right":true,"token":9007199254740993}`,
        ]
      }
      default:
        return [404, '{"detail":"Not Found"}']
    }
  }
}

function signed(session: string): string {
  return `${session}.${createHmac('sha1', 'secret').update(session).digest('base64url')}`
}

function sessionIn(header = ''): string | undefined {
  const [, value = ''] = new RegExp(`(?:^|; )${cookieName}=([^;]+)`).exec(header) ?? []
  const [session = ''] = value.split('.')
  return value !== '' && signed(session) === value ? session : undefined
}
