import { Semaphore } from '../kit/index.ts'

export interface AdaptiveLimitOptions {
  /** Where the limit starts, and what it never exceeds. */
  readonly maxConcurrency: number
  /** False keeps the limit where it is. */
  readonly adaptive: boolean
  readonly onChange: (from: number, to: number, why: string) => void
  /** How long refusals belong to one episode, unless the server asks for a longer pause. */
  readonly cooldownMs?: number
}

const cutFactor = 0.8
/** A limit that was cut comes back to its start in this many rounds of replies at most. */
const stepsToFull = 20
/**
 * How many replies one refusal outweighs. The limit grows while fewer than a quarter of the requests are refused: a
 * backend that refuses at random whatever the load cannot push it down to nothing, and one that really is full does.
 */
const refusalWeight = 3
/** A round of a small limit is too short to tell luck from recovery. */
const minRound = 8
const defaultCooldownMs = 15_000
const maxCooldownMs = 5 * 60_000

/**
 * How many requests may be on the way to a model at once. It starts at what was asked for. Being told to slow down cuts it
 * by a fifth, once per episode: the requests already on their way when it began will be refused too and say nothing new.
 * A round of replies raises it again by a step, never above its start. Errors of other kinds do not touch it, because
 * fewer requests at once would not have avoided them.
 */
export class AdaptiveLimit {
  readonly #permits: Semaphore
  readonly #options: AdaptiveLimitOptions
  readonly #step: number
  /** Replies since the last change, less what refusals took away. */
  #credit = 0
  #episodeEndsAt = Number.NEGATIVE_INFINITY

  constructor(options: AdaptiveLimitOptions) {
    this.#options = options
    this.#permits = new Semaphore(options.maxConcurrency)
    this.#step = Math.max(1, Math.ceil(options.maxConcurrency / stepsToFull))
  }

  get limit(): number {
    return this.#permits.limit
  }

  get inFlight(): number {
    return this.#permits.held
  }

  get waiting(): number {
    return this.#permits.waiting
  }

  /** True if a permit was free; the caller then owes a `release`. */
  tryAcquire(): boolean {
    return this.#permits.tryAcquire()
  }

  /** Waits for a permit, first come first served; as many may wait as there are callers. */
  acquire(signal: AbortSignal): Promise<void> {
    return this.#permits.acquire(signal)
  }

  release(): void {
    this.#permits.release()
  }

  onSuccess(): void {
    const { limit } = this.#permits
    if (limit === this.#options.maxConcurrency) return
    this.#credit += 1
    if (this.#credit < Math.max(limit, minRound)) return
    const raised = limit + Math.min(this.#step, limit)
    this.#move(
      Math.min(this.#options.maxConcurrency, raised),
      `${this.#credit} replies in its favour since the last change`,
    )
  }

  onRateLimited(retryAfterMs = 0): void {
    if (!this.#options.adaptive) return
    const now = performance.now()
    this.#credit = Math.max(0, this.#credit - refusalWeight)
    if (now < this.#episodeEndsAt) return
    const cooldownMs = Math.max(retryAfterMs, this.#options.cooldownMs ?? defaultCooldownMs)
    this.#episodeEndsAt = now + Math.min(cooldownMs, maxCooldownMs)
    const { limit } = this.#permits
    const cut = Math.max(1, Math.floor(limit * cutFactor))
    if (cut < limit) this.#move(cut, 'the backend asked for fewer requests (429)')
  }

  #move(to: number, why: string): void {
    const from = this.#permits.limit
    this.#credit = 0
    this.#permits.resize(to)
    this.#options.onChange(from, to, why)
  }
}
