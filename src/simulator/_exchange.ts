import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Delivery } from './_answer.ts'
import { readBody } from './_body-reader.ts'
import type { Dialect, StreamEvent, WireRequest } from './_dialect.ts'
import { httpError } from './_http-error.ts'
import type { ForcedFault } from './_faults.ts'
import type { Simulator } from './simulator.ts'

/** A paced stream sends what is due at most this often: more events cost more than they show. */
const tickMs = 20
/** Tokens in one event of a stream that is not paced. */
const unpacedGroupSize = 8

/** What an exchange needs from its server. */
export interface ExchangeOwner {
  readonly simulator: Simulator
  /** The fault that the model's name asks for, if it does; throws `model_not_found` for a name that is not served. */
  checkModel(model: string): ForcedFault | undefined
  onStatus(status: number): void
  /** Called once, however it ended. */
  onGone(exchange: Exchange, how: 'done' | 'aborted'): void
}

/** One request for a model's reply and its answer over HTTP, in the time and with the faults that the simulator chose. */
export class Exchange {
  readonly #owner: ExchangeOwner
  readonly #dialect: Dialect
  readonly #request: IncomingMessage
  readonly #response: ServerResponse
  #timer: NodeJS.Timeout | undefined
  /** `entered`: it holds a place in the simulator. `ended`: everything was said that will be. */
  #state: 'reading' | 'entered' | 'ended' = 'reading'
  #startedAt = 0

  constructor(owner: ExchangeOwner, dialect: Dialect, request: IncomingMessage, response: ServerResponse) {
    this.#owner = owner
    this.#dialect = dialect
    this.#request = request
    this.#response = response
  }

  start(): void {
    this.#response.on('close', () => this.#onClose())
    readBody(
      this.#request,
      (body) => this.#answer(body),
      (error) => this.#fail(error),
    )
  }

  destroy(): void {
    this.#response.destroy()
  }

  /** The connection is done with this exchange, or gone: the one place where everything is let go. */
  #onClose(): void {
    clearTimeout(this.#timer)
    const how = this.#state === 'ended' ? 'done' : 'aborted'
    this.#leave()
    this.#owner.onGone(this, how)
  }

  #leave(): void {
    if (this.#state === 'entered') this.#owner.simulator.leave()
    this.#state = 'ended'
  }

  #answer(body: unknown): void {
    try {
      const wire = this.#dialect.read(body)
      const forced = this.#owner.checkModel(wire.model)
      const retry = Number(this.#request.headers['x-stainless-retry-count'] ?? 0)
      this.#state = 'entered'
      const answer = this.#owner.simulator.enter(wire.request, Number.isInteger(retry) ? retry : 0, forced)
      if (answer.kind === 'refusal') {
        this.#fail(answer.error)
      } else if (answer.fault !== 'hang') {
        if (wire.stream) this.#stream(wire, answer)
        else this.#sendWhole(wire, answer)
      }
    } catch (error) {
      this.#fail(error)
    }
  }

  #fail(thrown: unknown): void {
    const { status, headers, body } = httpError(thrown)
    this.#owner.onStatus(status)
    // A body that was refused is not read to its end, so the connection cannot be used again.
    const connection = status === 413 ? { connection: 'close' } : {}
    this.#response.writeHead(status, {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(body),
      ...headers,
      ...connection,
    })
    this.#end(body)
  }

  #sendWhole(wire: WireRequest, delivery: Delivery): void {
    const { fault, totalMs, luck } = delivery
    if (fault === 'cut') this.#after(totalMs * luck, () => this.#writeWhole(wire, delivery))
    else if (totalMs > 0) this.#after(totalMs, () => this.#writeWhole(wire, delivery))
    else this.#writeWhole(wire, delivery)
  }

  #writeWhole(wire: WireRequest, delivery: Delivery): void {
    const whole = this.#dialect.whole(wire, delivery)
    // A missing colon, not a missing end: that would look like a reply that was cut.
    const body = delivery.fault === 'malformed' ? whole.replace(':', '') : whole
    this.#owner.onStatus(200)
    this.#response.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) })
    if (delivery.fault === 'cut') this.#cut(whole.slice(0, Math.floor(whole.length * delivery.luck)))
    else this.#end(body)
  }

  #stream(wire: WireRequest, delivery: Delivery): void {
    const { fault, luck, firstTokenMs, totalMs } = delivery
    const { output } = delivery.reply.usage
    const tokenMs = (totalMs - firstTokenMs) / output
    const groupSize = tokenMs === 0 ? unpacedGroupSize : Math.max(1, Math.floor(tickMs / tokenMs))
    let events = this.#dialect.events(wire, delivery, groupSize)
    if (fault === 'cut') {
      const said = events.filter((event) => !event.isEnd)
      events = said.slice(0, Math.max(1, Math.floor(said.length * luck)))
    } else if (fault === 'malformed') {
      const at = Math.floor(events.length * luck)
      events = events.map((event, index) => (index === at ? broken(event) : event))
    }
    this.#startedAt = performance.now()
    this.#after(firstTokenMs, () => {
      this.#owner.onStatus(200)
      this.#response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' })
      this.#pump({ events, next: 0, firstTokenMs, tokenMs, delivery })
    })
  }

  /** Sends what is due and comes back when more is. */
  #pump(stream: Stream): void {
    const elapsedMs = performance.now() - this.#startedAt
    let text = ''
    let dueMs = 0
    for (; stream.next < stream.events.length; stream.next += 1) {
      const event = stream.events[stream.next] as StreamEvent
      dueMs = stream.firstTokenMs + (event.tokens - 1) * stream.tokenMs
      if (stream.tokenMs > 0 && dueMs > elapsedMs + 1) break
      text += event.text
    }
    if (stream.next < stream.events.length) {
      if (text !== '') this.#response.write(text)
      this.#after(dueMs - elapsedMs, () => this.#pump(stream))
    } else if (stream.delivery.fault === 'cut' && isAbrupt(stream.delivery.luck)) {
      this.#cut(text)
    } else {
      this.#end(text)
    }
  }

  /** Breaks the connection once the text has left. */
  #cut(text: string): void {
    this.#leave()
    this.#response.write(text, () => this.#response.destroy())
  }

  #end(text: string): void {
    this.#leave()
    this.#response.end(text)
  }

  #after(ms: number, run: () => void): void {
    if (ms <= 0) run()
    else this.#timer = setTimeout(run, ms)
  }
}

interface Stream {
  readonly events: readonly StreamEvent[]
  next: number
  readonly firstTokenMs: number
  readonly tokenMs: number
  readonly delivery: Delivery
}

/** Two of three cut streams lose their connection; the third ends in order, only without saying that it is complete. */
function isAbrupt(luck: number): boolean {
  return (luck * 1000) % 3 < 2
}

function broken(event: StreamEvent): StreamEvent {
  return { ...event, text: `${event.text.slice(0, Math.ceil(event.text.length * 0.6)).trimEnd()}\n\n` }
}
