import type { Semaphore } from '../../kit/index.ts'

/** A failed try halves the weight of its backend, an answer doubles it, and so does this much time without either. */
const weightDoublesMs = 2000
const leastWeight = 0.1

/** What an engine says of itself in its metrics, for all of its clients. */
export interface EngineLoad {
  /** How much of its cache of keys and values is in use, from 0 to 1. */
  readonly kvUsage: number
  /** Requests that wait in its queue. */
  readonly queued: number
}

/**
 * What is on its way to one backend, and how well it does. Everything that is sent is counted here: calls in every API, and
 * requests that only count tokens.
 */
export class BackendLoad {
  /** Requests of this worker on their way to the backend. */
  requests = 0
  /** The tokens of the contexts of those requests, as far as they are known. */
  tokens = 0
  #onIdle: (() => void) | undefined
  #weight = 1
  #weighedAt = 0
  /** When the backend's last answer was complete, and the longest it ever took to begin one. */
  answeredAt = 0
  longestGapMs = 0
  /** What the engine said last, if it is asked and answers. */
  engine: EngineLoad | undefined

  begin(contextTokens: number): void {
    this.requests += 1
    this.tokens += contextTokens
  }

  end(contextTokens: number): void {
    this.requests -= 1
    this.tokens -= contextTokens
    if (this.requests === 0) this.#onIdle?.()
  }

  /** Resolves when the requests on their way have ended. Asked once, of a backend that gets no others. */
  idle(): Promise<void> {
    if (this.requests === 0) return Promise.resolve()
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#onIdle = resolve
    return promise
  }

  /** The share of new sessions that the backend gets beside one that does well, which has 1. */
  get weight(): number {
    if (this.#weight === 1) return 1
    return Math.min(1, this.#weight * 2 ** ((performance.now() - this.#weighedAt) / weightDoublesMs))
  }

  noteAnswer(answeredAt: number, gapMs: number): void {
    this.answeredAt = answeredAt
    this.longestGapMs = Math.max(this.longestGapMs, gapMs)
    if (this.#weight < 1) this.#weigh(this.weight * 2)
  }

  noteFailure(): void {
    this.#weigh(this.weight / 2)
  }

  #weigh(weight: number): void {
    this.#weight = Math.min(1, Math.max(leastWeight, weight))
    this.#weighedAt = performance.now()
  }
}

export interface LimitFeedback {
  onSuccess(): void
  /** `retryAfterMs`: the pause that the server asked for. */
  onRateLimited(retryAfterMs?: number): void
}

interface AdaptiveLimitOptions {
  readonly maxConcurrency: number
  /** False keeps the limit where it is. */
  readonly adaptive: boolean
  readonly permits: Pick<Semaphore, 'limit' | 'resize'>
  readonly onChange: (from: number, to: number, why: string) => void
  /** How long after a first refusal further ones belong to the same episode, unless the server asks for a longer pause. */
  readonly cooldownMs?: number
}

const cutFactor = 0.8
/** A limit that was cut is back at its start after this many rounds of replies at most. */
const stepsToFull = 20
/** How many replies one refusal outweighs: a backend that refuses a few at random does not push the limit down to nothing. */
const refusalWeight = 3
/** The fewest replies in a round: with a small limit, fewer could not tell luck from recovery. */
const minRound = 8
const defaultCooldownMs = 15_000
const maxCooldownMs = 5 * 60_000

/**
 * How many requests may be on the way to a model at once. A 429 cuts the limit by a fifth, once per episode: requests already
 * on their way will be refused too. A round of replies raises it by a step, never above its start.
 */
export class AdaptiveLimit implements LimitFeedback {
  readonly #options: AdaptiveLimitOptions
  readonly #step: number
  /** Replies since the limit last moved, less what refusals took away. */
  #credit = 0
  /** When the episode that a refusal began ends; further refusals until then say nothing new. */
  #episodeEndsAt = 0

  constructor(options: AdaptiveLimitOptions) {
    this.#options = options
    this.#step = Math.max(1, Math.ceil(options.maxConcurrency / stepsToFull))
  }

  onSuccess(): void {
    const { permits, maxConcurrency } = this.#options
    const { limit } = permits
    if (limit === maxConcurrency) return
    this.#credit += 1
    if (this.#credit < Math.max(limit, minRound)) return
    const raised = Math.min(maxConcurrency, limit + Math.min(this.#step, limit))
    this.#move(raised, `${this.#credit} replies without overload since the last change`)
  }

  onRateLimited(retryAfterMs = 0): void {
    const { permits, adaptive, cooldownMs = defaultCooldownMs } = this.#options
    if (!adaptive) return
    this.#credit = Math.max(0, this.#credit - refusalWeight)
    const now = performance.now()
    if (now < this.#episodeEndsAt) return
    this.#episodeEndsAt = now + Math.min(Math.max(retryAfterMs, cooldownMs), maxCooldownMs)
    const { limit } = permits
    const cut = Math.max(1, Math.floor(limit * cutFactor))
    if (cut < limit) this.#move(cut, 'the backend asked for fewer requests (429)')
  }

  #move(to: number, why: string): void {
    const { permits, onChange } = this.#options
    const from = permits.limit
    this.#credit = 0
    permits.resize(to)
    onChange(from, to, why)
  }
}
