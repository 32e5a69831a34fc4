import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http'
import { MillraceError } from '../errors/index.ts'
import type { JsonObject } from '../schema/index.ts'
import type { Delivery } from './_simulator-answer.ts'
import { readBody } from './_body-reader.ts'
import type { ApiRequest, SimulatedApi } from './_simulated-api.ts'
import type { ForcedFault } from './_fault-names.ts'
import type { HttpAnswer } from './_http-answer.ts'
import type { Origin, PacedJob } from './_paced-job.ts'
import { SentReply } from './_sent-reply.ts'
import { SentStream } from './_sent-stream.ts'
import { StreamedJob } from './_streamed-job.ts'
import { WholeJob } from './_whole-job.ts'
import type { Simulator } from './simulator.ts'

/** What an exchange needs from its server. */
export interface ExchangeOwner {
  readonly simulator: Simulator
  /** The fault that the model's name asks for, if any; throws `model_not_found` for a name that is not served. */
  checkModel(model: string): ForcedFault | undefined
  onStatus(status: number): void
  /** Called once, however the exchange ended. */
  onGone(exchange: SimulatorExchange, how: 'done' | 'aborted'): void
}

/** One request for a model's reply and its answer over HTTP, in the time and with the faults that the simulator chose. */
export class SimulatorExchange implements HttpAnswer {
  readonly #owner: ExchangeOwner
  readonly #api: SimulatedApi
  readonly #request: IncomingMessage
  readonly #response: ServerResponse
  #job: PacedJob | undefined
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
    this.#job?.stop()
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

  /** Refuses the request, in the words of its API. */
  #fail(thrown: unknown): void {
    const { status, headers, body } = this.#api.error(MillraceError.from(thrown, 'internal'))
    const text = JSON.stringify(body)
    this.begin(status, {
      'content-type': 'application/json',
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
    const origin: Origin = {
      session: typeof session === 'string' ? session : '',
      replyId: apiRequest.replyId(delivery),
      api: this.#api.name,
      ...(typeof named === 'string' && { requestName: named }),
    }
    const { simulator } = this.#owner
    const job = apiRequest.wantsStream
      ? new StreamedJob(simulator, origin, delivery, new SentStream(this, this.#api, apiRequest.stream(delivery)))
      : new WholeJob(simulator, origin, delivery, new SentReply(this, this.#api, apiRequest, delivery))
    this.#job = job
    job.start()
  }
}
