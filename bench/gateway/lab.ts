import { request } from 'undici'
import { BenchChild } from '../shared/bench-child.ts'
import type { GatewayLoad, LoadFigures } from './client.ts'
import { MillraceSubject, PortkeySubject } from './subjects.ts'
import { memoryMbOf } from '../shared/process-usage.ts'

/**
 * Who is asked. `proxy` and `recording` are the same Millrace: with the admin key and no session, and in sessions. `fields` is
 * the proxy, asked by clients that want the token fields for themselves: the same bytes from the backend as for a recording.
 */
export type Asked = 'direct' | 'proxy' | 'fields' | 'recording' | 'portkey'

export interface Shape {
  readonly concurrency: number
  readonly requests: number
  readonly turns: number
  readonly stream: boolean
  /** Conversations are spread over so many sessions; without it, each has one of its own. */
  readonly sessions?: number
}

/** Of each client, so that connections are open. What that costs is nothing beside a stream. */
const warmUpsOf = (stream: boolean): number => (stream ? 0 : 2)

/** Backend, client and what is compared, each a process of its own. */
export class GatewayLab implements AsyncDisposable {
  readonly #backend: string
  readonly #client: string
  readonly #millrace: MillraceSubject
  readonly #portkey: PortkeySubject
  readonly #owned: AsyncDisposableStack

  private constructor(
    parts: { backend: string; client: string; millrace: MillraceSubject; portkey: PortkeySubject },
    owned: AsyncDisposableStack,
  ) {
    this.#backend = parts.backend
    this.#client = parts.client
    this.#millrace = parts.millrace
    this.#portkey = parts.portkey
    this.#owned = owned
  }

  static async open(): Promise<GatewayLab> {
    await using owned = new AsyncDisposableStack()
    const backend = await owned.use(new BenchChild(new URL('./backend.ts', import.meta.url), {})).answer<string>()
    const client = await owned.use(new BenchChild(new URL('./client.ts', import.meta.url), {})).answer<string>()
    const millrace = owned.use(await MillraceSubject.start(backend))
    const portkey = owned.use(await PortkeySubject.start(backend))
    return new GatewayLab({ backend, client, millrace, portkey }, owned.move())
  }

  async run(asked: Asked, shape: Shape): Promise<LoadFigures> {
    const sessions = asked === 'recording' ? await this.#millrace.sessions(sessionsFor(shape)) : []
    const { origin, headers, pid } = this.#target(asked)
    const load: GatewayLoad = {
      ...shape,
      origin,
      headers,
      pid,
      keys: sessions.map(({ key }) => key),
      warmUps: warmUpsOf(shape.stream),
      asksTokens: asked === 'fields',
    }
    const { body } = await request(this.#client, {
      method: 'POST',
      body: JSON.stringify(load),
      headersTimeout: 0,
      bodyTimeout: 0,
    })
    const figures = (await body.json()) as LoadFigures
    if (asked === 'recording') await this.#requireRecord(sessions[0]?.id ?? '')
    return figures
  }

  memoryMb(): Record<'millrace' | 'portkey', { readonly now: number; readonly peak: number }> {
    return { millrace: memoryMbOf(this.#millrace.pid), portkey: memoryMbOf(this.#portkey.pid) }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#owned.disposeAsync()
  }

  #target(asked: Asked): Pick<GatewayLoad, 'origin' | 'headers' | 'pid'> {
    if (asked === 'portkey') return this.#portkey
    if (asked !== 'direct') return this.#millrace
    // Nothing stands between client and backend, so there is nobody to measure.
    const headers = { 'content-type': 'application/json' }
    return { origin: new URL(this.#backend).origin, headers, pid: process.pid }
  }

  /** A gateway that does not record what it should is no subject. */
  async #requireRecord(session: string): Promise<void> {
    const recorded = await this.#millrace.recorded(session)
    if (!(recorded > 0)) throw new Error(`session ${session} has no record of the load`)
  }
}

/** Each client begins its first conversation in a session of its own, for the warm-up and for the load. */
function sessionsFor({ sessions, requests, turns, concurrency, stream }: Shape): number {
  return sessions ?? Math.ceil((requests + warmUpsOf(stream) * concurrency) / turns) + 2 * concurrency
}
