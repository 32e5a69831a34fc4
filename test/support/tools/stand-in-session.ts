import type { SharableSession, ServerEventListener } from '../../../src/tools/mcp/sharing/session-source.ts'
import type { ServerAnswer } from '../../../src/tools/mcp/transports/pending-calls.ts'
import type { ToolCatalogue } from '../../../src/tools/mcp/catalogue/tool-catalogue.ts'

/** A session without a server, whose start a test decides: for the order of events that no real process can be held to. */
export class StandInSession implements SharableSession {
  readonly number: number
  /** Where its events go. */
  readonly tell: ServerEventListener
  catalogue: ToolCatalogue | undefined
  holds = 0
  state: 'new' | 'opening' | 'open' | 'closing' | 'closed' = 'new'
  readonly #opened = Promise.withResolvers<ToolCatalogue>()
  readonly #closed = Promise.withResolvers<void>()
  readonly #stand: SessionStand

  constructor(stand: SessionStand, number: number, tell: ServerEventListener) {
    this.#stand = stand
    this.tell = tell
    this.number = number
    this.#opened.promise.catch(() => {})
  }

  get isOpen(): boolean {
    return this.state === 'open'
  }

  open(): Promise<ToolCatalogue> {
    if (this.state !== 'new') return this.#opened.promise
    this.state = 'opening'
    if (this.#stand.starts === 'well') this.start()
    if (this.#stand.starts === 'badly') this.fail(new Error(`start ${this.number} failed`))
    return this.#opened.promise
  }

  beginLease(): void {
    this.holds += 1
  }

  start(): void {
    this.state = 'open'
    this.catalogue = { server: 'stand-in', tools: [], digest: 'd' }
    this.#opened.resolve(this.catalogue)
  }

  fail(error: Error): void {
    this.state = 'closed'
    this.#opened.reject(error)
  }

  call(): Promise<ServerAnswer> {
    const detail = { server: 'stand-in', generation: 1, attempts: 1 }
    return Promise.resolve({ content: String(this.number), isError: false, detail })
  }

  close(): Promise<void> {
    if (this.state === 'closed') return Promise.resolve()
    this.#opened.reject(new Error('closed'))
    this.state = 'closing'
    if (this.#stand.ends === 'well') this.end()
    if (this.#stand.ends === 'badly') this.#closed.reject(new Error(`end ${this.number} failed`))
    return this.#closed.promise
  }

  end(): void {
    this.state = 'closed'
    this.#closed.resolve()
  }
}

/** Where stand-ins come from, in the order in which they were asked for. */
export class SessionStand {
  /** What becomes of those that are opened or closed from now on; `held` are left to the test. */
  starts: 'well' | 'badly' | 'held' = 'well'
  ends: 'well' | 'badly' | 'held' = 'well'
  readonly sessions: StandInSession[] = []

  readonly make = (tell: ServerEventListener): StandInSession => {
    const session = new StandInSession(this, this.sessions.length + 1, tell)
    this.sessions.push(session)
    return session
  }

  get states(): string[] {
    return this.sessions.map(({ state }) => state)
  }
}
