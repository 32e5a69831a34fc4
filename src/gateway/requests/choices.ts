import { maxChoices } from '../../apis/index.ts'
import { sseEvent } from '../../kit/index.ts'
import type { JsonObject } from '../../schema/index.ts'
import type { ClientReply } from '../../endpoint/index.ts'
import type { InteractionCall } from './incoming-request.ts'
import { upstreamBody } from './upstream-body.ts'

/**
 * The requests for the choices of a Chat request with `n` above 1; else the request itself. Each choice is sampled and
 * recorded by itself, so that its tokens are exact, and has a seed of its own: with one seed all would be the same.
 */
export function choicesOf(call: InteractionCall, members: JsonObject): readonly InteractionCall[] {
  const { n: count, seed } = members
  if (typeof count !== 'number' || !isSeveral(count) || !isSeedFor(count, seed)) return [call]
  return Array.from({ length: count }, (_, index) => {
    const fields = { n: undefined, ...(typeof seed === 'number' && { seed: seed + index }) }
    return { ...call, body: upstreamBody({ bytes: call.body, members }, fields), choice: { index, count } }
  })
}

function isSeveral(count: number): boolean {
  return Number.isInteger(count) && count > 1 && count <= maxChoices
}

function isSeedFor(count: number, seed: unknown): boolean {
  return typeof seed !== 'number' || (Number.isSafeInteger(seed) && Number.isSafeInteger(seed + (count - 1)))
}

type Document = Record<string, unknown>

/**
 * The replies to all choices of a request, as one reply to its client. No choice ends before all are recorded. If one fails,
 * the client gets its error and nothing else, and the others are told that their client is gone.
 */
export class JoinedChoices {
  readonly #client: ClientReply
  readonly #choices: readonly JoinedChoice[]
  readonly #together = Promise.withResolvers<void>()
  #ready = 0
  #ended = 0
  #state: 'waiting' | 'streaming' | 'ended' | 'gone' = 'waiting'
  /** The id that all events of the stream have: that of the choice which came first. */
  #id: unknown
  #resumes: (() => void)[] = []

  constructor(client: ClientReply, count: number) {
    this.#client = client
    this.#choices = Array.from({ length: count }, (_, index) => new JoinedChoice(this, index))
    if (client.isGone) this.#abandon()
    else client.onGone(() => this.#abandon())
  }

  get isGone(): boolean {
    return this.#state === 'gone'
  }

  choice(index: number): ClientReply {
    return this.#choices[index] as JoinedChoice
  }

  /** Called once by each choice whose reply is there. Resolves when all are, or the client is gone. */
  ready(): Promise<void> {
    this.#ready += 1
    if (this.#ready === this.#choices.length) this.#together.resolve()
    return this.#together.promise
  }

  beginStream(headers: Readonly<Record<string, string>>): void {
    if (this.#state !== 'waiting') return
    this.#state = 'streaming'
    this.#client.beginStream(headers)
  }

  /** Writes the events of one choice. Its usage and its end are kept back: the stream has one of each. */
  write(choice: JoinedChoice, text: string, resume: () => void): boolean {
    if (this.#state !== 'streaming') return true
    let joined = ''
    for (const event of text.split(eventEnd)) {
      if (!event.startsWith(dataField)) joined += event === '' ? '' : event + eventEnd
      else if (event !== lastEvent) joined += this.#event(choice, JSON.parse(event.slice(dataField.length)) as Document)
    }
    if (joined === '' || this.#client.write(joined, this.#resumeAll)) return true
    this.#resumes.push(resume)
    return false
  }

  end(choice: JoinedChoice): void {
    if (this.#state === 'gone') return
    // A stream that ends with an error fails all choices.
    if (choice.failure !== undefined) {
      this.fail(choice, { status: 500, headers: {}, body: choice.failure })
      return
    }
    this.#ended += 1
    if (this.#ended < this.#choices.length) return
    const isStream = this.#state === 'streaming'
    this.#state = 'ended'
    this.#client.onGone(undefined)
    if (isStream) this.#endStream()
    else this.#client.whole(200, {}, JSON.stringify(this.#whole()))
  }

  fail(failed: JoinedChoice, { status, headers, body }: FailedReply): void {
    if (this.#state === 'gone' || this.#state === 'ended') return
    this.#client.onGone(undefined)
    if (this.#state === 'waiting') this.#client.whole(status, headers, body)
    else {
      this.#client.write(sseEvent(body), ignore)
      this.#client.endStream()
    }
    this.#abandon(failed)
  }

  #abandon(failed?: JoinedChoice): void {
    this.#state = 'gone'
    this.#together.resolve()
    this.#resumeAll()
    for (const choice of this.#choices) if (choice !== failed) choice.leave()
  }

  readonly #resumeAll = (): void => {
    const resumes = this.#resumes
    this.#resumes = []
    for (const resume of resumes) resume()
  }

  #event(choice: JoinedChoice, document: Document): string {
    if (document['error'] !== undefined) {
      choice.failure = JSON.stringify(document)
      return ''
    }
    const { usage, choices } = document
    if (isDocument(usage)) choice.usage = usage
    const isOnlyUsage = Array.isArray(choices) && choices.length === 0 && isDocument(usage)
    if (isOnlyUsage) {
      choice.usageEvent = document
      return ''
    }
    this.#id ??= document['id']
    const seen = {
      ...document,
      id: this.#id,
      choices: choice.inPlace(document),
      ...('usage' in document && { usage: null }),
    }
    return sseEvent(JSON.stringify(seen))
  }

  #endStream(): void {
    const event = this.#choices.find(({ usageEvent }) => usageEvent)?.usageEvent
    const usage = event ? sseEvent(JSON.stringify({ ...event, id: this.#id, usage: this.#usage() })) : ''
    this.#client.write(usage + lastEvent + eventEnd, ignore)
    this.#client.endStream()
  }

  #whole(): Document {
    const choices = this.#choices.flatMap((choice) => choice.inPlace(choice.document ?? {}))
    return { ...this.#choices[0]?.document, choices, usage: this.#usage() }
  }

  #usage(): Document {
    return this.#choices.map(({ usage = {} }) => usage).reduce(sumOf)
  }
}

interface FailedReply {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

class JoinedChoice implements ClientReply {
  readonly #all: JoinedChoices
  readonly #index: number
  #listener: (() => void) | undefined
  #ready: Promise<void> | undefined
  document: Document | undefined
  usage: Document | undefined
  usageEvent: Document | undefined
  failure: string | undefined

  constructor(all: JoinedChoices, index: number) {
    this.#all = all
    this.#index = index
  }

  get isGone(): boolean {
    return this.#all.isGone
  }

  onGone(listener: (() => void) | undefined): void {
    this.#listener = listener
  }

  leave(): void {
    this.#listener?.()
  }

  ready(): Promise<void> {
    this.#ready ??= this.#all.ready()
    return this.#ready
  }

  whole(status: number, headers: Readonly<Record<string, string>>, body: string): void {
    if (status !== 200) {
      this.#all.fail(this, { status, headers, body })
      return
    }
    this.document = JSON.parse(body) as Document
    if (isDocument(this.document['usage'])) this.usage = this.document['usage']
    this.#all.end(this)
  }

  beginStream(headers: Readonly<Record<string, string>>): void {
    this.#all.beginStream(headers)
  }

  write(text: string, resume: () => void): boolean {
    return this.#all.write(this, text, resume)
  }

  endStream(): void {
    this.#all.end(this)
  }

  /** The choice of a reply, or of an event of one, at its place among all, with the id that its reply is recorded under. */
  inPlace({ id, choices }: Document): readonly unknown[] {
    const own: readonly unknown[] = Array.isArray(choices) ? choices : []
    const place = { index: this.#index, interaction_id: id }
    return own.map((choice) => (isDocument(choice) ? Object.assign(choice, place) : choice))
  }
}

const eventEnd = '\n\n'
const dataField = 'data: '
const lastEvent = 'data: [DONE]'

/** The sum of all numbers, also of those inside; of other values the first. */
function sumOf(one: Document, other: Document): Document {
  const sum: Document = { ...one }
  for (const [name, value] of Object.entries(other)) {
    const before = sum[name]
    if (typeof value === 'number' && typeof before === 'number') sum[name] = before + value
    else if (isDocument(value) && isDocument(before)) sum[name] = sumOf(before, value)
    else sum[name] ??= value
  }
  return sum
}

function isDocument(value: unknown): value is Document {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function ignore(): void {}
