import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http'
import { eventText } from '../../apis/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { utf8Problem } from '../../kit/index.ts'
import { isJsonObject, type JsonObject } from '../../schema/index.ts'
import type { ApiRequest, SimulatedApi, StreamStep, StreamWriter } from '../apis/dialect-api.ts'
import {
  type BreakingFault,
  completeSample,
  type Delivery,
  PacedReply,
  type ReplyConsumer,
  type Sample,
  type TokenGroup,
  tokensOf,
} from '../engine/paced-reply.ts'
import { faultError, type ForcedFault } from '../engine/faults.ts'
import type { Simulator } from '../engine/simulator.ts'

export interface ExchangeOwner {
  readonly simulator: Simulator
  /** The fault that the model's name asks for, if any; throws `model_not_found` for a name that is not served. */
  checkModel(model: string): ForcedFault | undefined
  onStatus(status: number): void
  onGone(exchange: SimulatorExchange, how: 'done' | 'aborted'): void
}

const json = { 'content-type': 'application/json' }

export class SimulatorExchange {
  readonly #owner: ExchangeOwner
  readonly #api: SimulatedApi
  readonly #request: IncomingMessage
  readonly #response: ServerResponse
  #reply: PacedReply | undefined
  /** `entered`: the exchange holds a place in the simulator. `ended`: everything was sent that will be. */
  #state: 'reading' | 'entered' | 'ended' = 'reading'

  constructor(owner: ExchangeOwner, api: SimulatedApi, request: IncomingMessage, response: ServerResponse) {
    this.#owner = owner
    this.#api = api
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

  begin(status: number, headers: OutgoingHttpHeaders): void {
    this.#owner.onStatus(status)
    this.#response.writeHead(status, headers)
  }

  write(text: string): void {
    if (text !== '') this.#response.write(text)
  }

  end(text: string): void {
    this.#leave()
    this.#response.end(text)
  }

  cut(text: string): void {
    this.#leave()
    this.#response.write(text, () => this.#response.destroy())
  }

  /** The connection is done with this exchange, or gone: the only place that lets go of everything. */
  #onClose(): void {
    this.#reply?.stop()
    const how = this.#state === 'ended' ? 'done' : 'aborted'
    this.#leave()
    this.#owner.onGone(this, how)
  }

  #leave(): void {
    if (this.#state === 'entered') this.#owner.simulator.leave()
    this.#state = 'ended'
  }

  #answer(body: JsonObject): void {
    try {
      const apiRequest = this.#api.read(body)
      const forced = apiRequest.model === undefined ? undefined : this.#owner.checkModel(apiRequest.model)
      const retry = Number(this.#request.headers['x-stainless-retry-count'] ?? 0)
      this.#state = 'entered'
      const answer = this.#owner.simulator.enter(apiRequest.request, Number.isInteger(retry) ? retry : 0, forced)
      if (answer.kind === 'refusal') this.#fail(answer.error)
      else this.#deliver(apiRequest, answer)
    } catch (error) {
      this.#fail(error)
    }
  }

  #fail(thrown: unknown): void {
    const { status, headers, body } = this.#api.error(MillraceError.from(thrown, 'internal'))
    const text = JSON.stringify(body)
    this.begin(status, {
      ...json,
      'content-length': Buffer.byteLength(text),
      ...headers,
      // A refused body is not read to its end, so the connection cannot be used again.
      ...(status === 413 && { connection: 'close' }),
    })
    this.end(text)
  }

  #deliver(apiRequest: ApiRequest, delivery: Delivery): void {
    const { headers } = this.#request
    const named = apiRequest.requestName ?? headers['x-request-id']
    const session = headers['x-session-id']
    const origin = {
      session: typeof session === 'string' ? session : '',
      replyId: apiRequest.replyId(delivery),
      api: this.#api.name,
      ...(typeof named === 'string' && { requestName: named }),
    }
    const isStream = apiRequest.wantsStream
    const consumer = new HttpReply(this, this.#api, { apiRequest, delivery })
    this.#reply = new PacedReply(this.#owner.simulator, { delivery, origin, isStream }, consumer)
    this.#reply.start()
  }
}

/** Sends a reply over HTTP, or what a fault makes of it. Never asks the reply to wait: it is in memory anyway. */
class HttpReply implements ReplyConsumer {
  readonly #exchange: SimulatorExchange
  readonly #api: SimulatedApi
  readonly #apiRequest: ApiRequest
  readonly #delivery: Delivery
  readonly #writer: StreamWriter | undefined
  /** Text of a stream that is due and not yet sent, so that one write takes all of it. */
  #text = ''
  #hasBegun = false

  constructor(
    exchange: SimulatorExchange,
    api: SimulatedApi,
    { apiRequest, delivery }: { readonly apiRequest: ApiRequest; readonly delivery: Delivery },
  ) {
    this.#exchange = exchange
    this.#api = api
    this.#apiRequest = apiRequest
    this.#delivery = delivery
    this.#writer = apiRequest.wantsStream ? apiRequest.stream(delivery) : undefined
  }

  onStart(version: string | undefined): boolean {
    this.#hasBegun = true
    this.#exchange.begin(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' })
    this.#text += textOf(this.#writer?.start(version))
    return true
  }

  onGroup(group: TokenGroup, version: string | undefined, isGarbled: boolean): boolean {
    const text = textOf(this.#writer?.group(group, version))
    // A garbled piece has its last event without the closing brace.
    this.#text += isGarbled ? `${text.trimEnd().slice(0, -1)}\n\n` : text
    return true
  }

  onPause(): void {
    this.#exchange.write(this.#taken())
  }

  onEnd(sample: Sample): void {
    if (this.#writer) {
      // The reply was aborted before it began: its end is still sent as a stream.
      if (!this.#hasBegun) this.onStart(sample.versions[0]?.version)
      this.#text += textOf(this.#writer.end(sample))
      this.#exchange.end(this.#taken())
    } else if (this.#hasBegun) {
      // The reply was aborted after it stalled: half of another one is on its way already.
      this.#exchange.cut('')
    } else {
      const text = JSON.stringify(this.#apiRequest.whole(this.#delivery, sample))
      // A colon is removed, not the end: a missing end would look like a reply that was cut.
      this.#sendWhole(this.#delivery.fault === 'malformed' ? text.replace(':', '') : text)
    }
  }

  onFault(fault: BreakingFault): void {
    if (this.#writer) {
      if (fault === 'midstreamError') this.#text += eventText(this.#api.streamError(faultError(fault)))
      this.#cutShort(fault, this.#taken())
    } else if (fault === 'midstreamError') {
      this.#sendWhole(JSON.stringify(this.#api.error(faultError(fault)).body))
    } else {
      // The version does not matter in a reply that nobody gets whole.
      const sample = completeSample(this.#delivery, tokensOf(this.#delivery), [])
      const whole = JSON.stringify(this.#apiRequest.whole(this.#delivery, sample))
      // Without a length, the end of the connection is the end of the reply: nothing shows that it is cut.
      const length = fault === 'quietEnd' ? {} : { 'content-length': Buffer.byteLength(whole) }
      this.#hasBegun = true
      this.#exchange.begin(200, { ...json, ...length })
      this.#cutShort(fault, whole.slice(0, Math.floor(whole.length * this.#delivery.luck)))
    }
  }

  #cutShort(fault: BreakingFault, text: string): void {
    if (fault === 'stall') this.#exchange.write(text)
    else if (fault === 'kill') this.#exchange.cut(text)
    else this.#exchange.end(text)
  }

  #sendWhole(text: string): void {
    this.#exchange.begin(200, { ...json, 'content-length': Buffer.byteLength(text) })
    this.#exchange.end(text)
  }

  #taken(): string {
    const text = this.#text
    this.#text = ''
    return text
  }
}

function textOf(step: StreamStep | undefined): string {
  return step?.events.map(eventText).join('') ?? ''
}

const maxBodyBytes = 32 * 1024 * 1024

/** Reads a body to its end and hands it over; an empty one counts as `{}`. If the client goes away before, nothing is called. */
export function readBody(
  request: IncomingMessage,
  onEnd: (body: JsonObject) => void,
  onError: (error: MillraceError) => void,
): void {
  const chunks: Buffer[] = []
  let bytes = 0
  let isRefused = false
  request.on('data', (chunk: Buffer) => {
    bytes += chunk.length
    if (isRefused) return
    if (bytes <= maxBodyBytes) {
      chunks.push(chunk)
      return
    }
    isRefused = true
    chunks.length = 0
    onError(refused(`the body is larger than ${maxBodyBytes} bytes; send less`, 413))
  })
  request.on('end', () => {
    if (isRefused) return
    const [first] = chunks
    const body = parsed(chunks.length === 1 && first ? first : Buffer.concat(chunks))
    if (body instanceof MillraceError) onError(body)
    else onEnd(body)
  })
}

function parsed(bytes: Buffer): JsonObject | MillraceError {
  const problem = utf8Problem(bytes)
  if (problem !== undefined) return refused(problem, 400)
  let value: unknown
  try {
    value = bytes.length === 0 ? {} : JSON.parse(bytes.toString())
  } catch (error) {
    return refused(`the body is not JSON: ${error instanceof Error ? error.message : String(error)}`, 400)
  }
  return isJsonObject(value) ? value : refused('the body is not an object, such as {"model": "sim"}', 400)
}

function refused(message: string, status: number): MillraceError {
  return new MillraceError('model_rejected', message, { data: { status } })
}
