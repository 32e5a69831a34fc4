import { eventText } from '../dialects/index.ts'
import type { SimulatedApi, StreamStep, StreamWriter } from './_simulated-api.ts'
import { faultError } from './_faults.ts'
import type { HttpAnswer } from './_http-answer.ts'
import type { Sample } from './_sample.ts'
import type { StreamListener } from './_streamed-job.ts'
import type { TokenGroup } from './_token-groups.ts'
import type { BreakingFault } from './_whole-job.ts'

/** Sends a streamed reply over HTTP, or what a fault makes of it. Never asks the job to wait: the reply is in memory anyway. */
export class SentStream implements StreamListener {
  readonly #answer: HttpAnswer
  readonly #api: SimulatedApi
  readonly #writer: StreamWriter
  /** Text that is due and not yet sent, so that one write takes all of it. */
  #text = ''
  #hasBegun = false

  constructor(answer: HttpAnswer, api: SimulatedApi, writer: StreamWriter) {
    this.#answer = answer
    this.#api = api
    this.#writer = writer
  }

  onStart(version: string | undefined): boolean {
    this.#begin()
    this.#text += textOf(this.#writer.start(version))
    return true
  }

  onGroup(group: TokenGroup, version: string | undefined): boolean {
    this.#text += textOf(this.#writer.group(group, version))
    return true
  }

  onGarbledGroup(group: TokenGroup, version: string | undefined): boolean {
    const text = textOf(this.#writer.group(group, version))
    // The last event without its closing brace.
    this.#text += `${text.trimEnd().slice(0, -1)}\n\n`
    return true
  }

  onPause(): void {
    this.#answer.write(this.#taken())
  }

  onEnd(sample: Sample): void {
    // The reply was aborted before it began: its end is still sent as a stream.
    if (!this.#hasBegun) this.onStart(sample.versions[0]?.version)
    this.#text += textOf(this.#writer.end(sample))
    this.#answer.end(this.#taken())
  }

  onFault(fault: BreakingFault): void {
    if (fault === 'midstreamError') this.#text += eventText(this.#api.streamError(faultError(fault)))
    if (fault === 'stall') this.#answer.write(this.#taken())
    else if (fault === 'kill') this.#answer.cut(this.#taken())
    else this.#answer.end(this.#taken())
  }

  #begin(): void {
    this.#hasBegun = true
    this.#answer.begin(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' })
  }

  #taken(): string {
    const text = this.#text
    this.#text = ''
    return text
  }
}

function textOf({ events }: StreamStep): string {
  let text = ''
  for (const event of events) text += eventText(event)
  return text
}
