import { timerMs } from '../../kit/index.ts'

export interface WeightVersion {
  readonly version: string
}

/** A reply that has ended: the version before it was sent, and what the server answers to the first question after it. */
interface EndedReply {
  readonly before: WeightVersion | undefined
  readonly after: Promise<WeightVersion | undefined>
}

/** The answer to a request for the version: `none` if the server has no answer to it, `unknown` if it did not answer now. */
export type VersionAnswer = WeightVersion | 'none' | 'unknown'

/** How often the version is asked for at most, while replies wait for it. */
const everyMs = 10_000

/**
 * The version of the weights of a server whose replies do not say it. A reply has a version only if the server named the same
 * one before the request was sent and after the reply had ended: one question is enough for all replies that ended before it.
 */
export class WeightWatch {
  readonly #ask: () => Promise<VersionAnswer>
  #state: 'watching' | 'none' | 'closed' = 'watching'
  #seen: WeightVersion | undefined
  #last: string | undefined
  #wasAsked = false
  /** For replies that ended since the last question was sent. */
  #next: PromiseWithResolvers<WeightVersion | undefined> | undefined
  #looking: Promise<void> | undefined
  #timer: NodeJS.Timeout | undefined
  /** How long the next question has to wait: a server that does not answer is not asked for every request. */
  #delayMs = 0
  /** How often the version was set. */
  #change = 0

  constructor(ask: () => Promise<VersionAnswer>) {
    this.#ask = ask
  }

  /** What was last seen, for a request that is about to be sent. */
  get seen(): WeightVersion | undefined {
    if (!this.#seen && !this.#looking) this.#plan(this.#delayMs)
    return this.#seen
  }

  /** Whether the server has answered the first question, or need not be asked. */
  get wasAsked(): boolean {
    return this.#wasAsked
  }

  /** The version that the server named last, even if it does not answer now. */
  get last(): string | undefined {
    return this.#last
  }

  /** Resolves when the server has answered the first question, whatever it said. */
  async first(): Promise<void> {
    if (!this.#wasAsked && this.#state === 'watching') await this.#lookOnce()
  }

  get isWatching(): boolean {
    return this.#state === 'watching'
  }

  /** A reply has just ended: `before` was seen when its request was sent. */
  ended(before: WeightVersion | undefined): EndedReply {
    if (!before || !this.isWatching) return { before, after: Promise.resolve(undefined) }
    this.#next ??= Promise.withResolvers()
    return { before, after: this.#next.promise }
  }

  /** The version of a reply, if it is known. */
  async versionOf({ before, after }: EndedReply): Promise<string | undefined> {
    if (!before || !this.isWatching) return undefined
    this.#plan(everyMs)
    const { version } = (await after) ?? {}
    return version === before.version ? version : undefined
  }

  /** The version was set by us; undefined while it changes. A question that is under way says what held before. */
  set(version: WeightVersion | undefined): void {
    this.#change += 1
    this.#seen = version
    this.#last = version?.version ?? this.#last
    if (version) this.#wasAsked = true
  }

  async look(): Promise<void> {
    const due = this.#next
    // The replies that wait may have ended after the question under way was sent.
    while (this.#looking) await this.#looking
    if (!due || due !== this.#next) return
    await this.#lookOnce()
  }

  close(): void {
    this.#state = 'closed'
    this.#end()
  }

  #plan(ms: number): void {
    if (this.#state !== 'watching') return
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined
      // Replies may wait for more than the question that is under way.
      void (this.#next ? this.look() : this.#lookOnce())
    }, timerMs(ms)).unref()
  }

  #lookOnce(): Promise<void> {
    this.#looking ??= this.#answered().finally(() => {
      this.#looking = undefined
    })
    return this.#looking
  }

  async #answered(): Promise<void> {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#delayMs = everyMs
    const due = this.#next
    this.#next = undefined
    const change = this.#change
    const answer = await this.#ask()
    if (answer === 'none' && this.#state === 'watching') this.#state = 'none'
    this.#wasAsked = true
    const said = typeof answer === 'string' ? undefined : answer
    if (change === this.#change) {
      this.#seen = said
      this.#last = said?.version ?? this.#last
    }
    due?.resolve(said)
    if (this.#state !== 'watching') this.#end()
  }

  #end(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#next?.resolve(undefined)
    this.#next = undefined
  }
}
