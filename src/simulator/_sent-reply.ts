import { tokensOf, type Delivery } from './_simulator-answer.ts'
import type { ApiRequest, SimulatedApi } from './_simulated-api.ts'
import { faultError } from './_faults.ts'
import type { HttpAnswer } from './_http-answer.ts'
import { completeSample, type Sample } from './_sample.ts'
import type { BreakingFault, WholeListener } from './_whole-job.ts'

const contentType = { 'content-type': 'application/json' }

/** Sends a whole reply over HTTP, or what a fault makes of it. */
export class SentReply implements WholeListener {
  readonly #answer: HttpAnswer
  readonly #api: SimulatedApi
  readonly #apiRequest: ApiRequest
  readonly #delivery: Delivery
  #isStalled = false

  constructor(answer: HttpAnswer, api: SimulatedApi, apiRequest: ApiRequest, delivery: Delivery) {
    this.#answer = answer
    this.#api = api
    this.#apiRequest = apiRequest
    this.#delivery = delivery
  }

  onEnd(sample: Sample): void {
    // The reply was aborted after it stalled: half of another one is on its way already.
    if (this.#isStalled) {
      this.#answer.cut('')
      return
    }
    const text = JSON.stringify(this.#apiRequest.whole(this.#delivery, sample))
    // A colon is removed, not the end: a missing end would look like a reply that was cut.
    this.#send(this.#delivery.fault === 'malformed' ? text.replace(':', '') : text)
  }

  onFault(fault: BreakingFault): void {
    if (fault === 'midstreamError') {
      this.#send(JSON.stringify(this.#api.error(faultError(fault)).body))
      return
    }
    const whole = JSON.stringify(this.#apiRequest.whole(this.#delivery, this.#unstamped()))
    const part = whole.slice(0, Math.floor(whole.length * this.#delivery.luck))
    // Without a length, the end of the connection is the end of the reply: nothing shows that it is cut.
    const length = fault === 'quietEnd' ? {} : { 'content-length': Buffer.byteLength(whole) }
    this.#answer.begin(200, { ...contentType, ...length })
    this.#isStalled = fault === 'stall'
    if (fault === 'stall') this.#answer.write(part)
    else if (fault === 'quietEnd') this.#answer.end(part)
    else this.#answer.cut(part)
  }

  #send(text: string): void {
    this.#answer.begin(200, { ...contentType, 'content-length': Buffer.byteLength(text) })
    this.#answer.end(text)
  }

  /** The version does not matter in a reply that nobody gets whole. */
  #unstamped(): Sample {
    return completeSample(this.#delivery, tokensOf(this.#delivery), [])
  }
}
