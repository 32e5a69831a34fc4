import type { Semaphore } from '../../kit/index.ts'
import { ownLimits, type LimitLessons, type ModelLimits } from './model-limits.ts'
import { TimeCell, machineNow } from './_time-cell.ts'

export interface AdaptiveLimitOptions {
  /** Where the limit starts, and what it never exceeds. */
  readonly maxConcurrency: number
  /** False keeps the limit where it is. */
  readonly adaptive: boolean
  /** Called in the one worker that moved the limit. */
  readonly onChange: (from: number, to: number, why: string) => void
  /** Limits shared with other workers; if missing, the limit is this worker's own. */
  readonly limits?: Pick<ModelLimits, 'permits' | 'cells' | 'lessons'>
  /** How long after a first refusal further ones belong to the same episode, unless the server asks for a longer pause. */
  readonly cooldownMs?: number
}

const cutFactor = 0.8
/** A limit that was cut is back at its start after this many rounds of replies at most. */
const stepsToFull = 20
/**
 * How many replies one refusal outweighs. The limit grows while fewer than a quarter of the requests are refused: a backend
 * that refuses at random whatever the load does not push it down to nothing, and one that really is full does.
 */
const refusalWeight = 3
/** The fewest replies in a round: with a small limit, fewer could not tell luck from recovery. */
const minRound = 8
const defaultCooldownMs = 15_000
const maxCooldownMs = 5 * 60_000

/**
 * How many requests may be on the way to a model at once. The limit starts at `maxConcurrency`. A refusal that asks for fewer
 * requests cuts it by a fifth, once per episode: the requests that are already on their way will be refused too and say
 * nothing new. A round of replies raises it again by a step, never above its start. Errors of other kinds do not touch it,
 * because fewer requests at once would not have avoided them.
 */
export class AdaptiveLimit implements LimitLessons {
  readonly #permits: Semaphore
  readonly #credit: Int32Array
  readonly #episodeEndsAt: TimeCell
  readonly #lessons: LimitLessons | undefined
  readonly #options: AdaptiveLimitOptions
  readonly #step: number

  constructor(options: AdaptiveLimitOptions) {
    const { maxConcurrency, adaptive } = options
    const { permits, cells, lessons } =
      options.limits ?? ownLimits({ name: 'own', maxConcurrency, adaptive, backends: 0 })
    this.#options = options
    this.#permits = permits
    this.#credit = cells.credit
    this.#episodeEndsAt = new TimeCell(cells.episodeEndsAt)
    this.#lessons = lessons
    this.#step = Math.max(1, Math.ceil(options.maxConcurrency / stepsToFull))
  }

  get limit(): number {
    return this.#permits.limit
  }

  /** True if a permit was free; the caller then owes a `release`. */
  tryAcquire(): boolean {
    return this.#permits.tryAcquire()
  }

  /** Waits for a permit, first come first served. There is no bound on how many wait. */
  acquire(signal: AbortSignal): Promise<void> {
    return this.#permits.acquire(signal)
  }

  release(): void {
    this.#permits.release()
  }

  onSuccess(): void {
    if (this.#lessons) return this.#lessons.onSuccess()
    const { limit } = this.#permits
    if (limit === this.#options.maxConcurrency) return
    const credit = Atomics.add(this.#credit, 0, 1) + 1
    if (credit < Math.max(limit, minRound)) return
    const raised = Math.min(this.#options.maxConcurrency, limit + Math.min(this.#step, limit))
    this.#move(limit, raised, `${credit} replies in its favour since the last change`)
  }

  onRateLimited(retryAfterMs = 0): void {
    if (this.#lessons) return this.#lessons.onRateLimited(retryAfterMs)
    if (!this.#options.adaptive) return
    this.#takeCredit()
    const now = machineNow()
    const endsAt = this.#episodeEndsAt.ms
    if (now < endsAt) return
    const cooldownMs = Math.max(retryAfterMs, this.#options.cooldownMs ?? defaultCooldownMs)
    // Only one of the workers that are refused now begins the episode and cuts the limit.
    if (!this.#episodeEndsAt.swap(endsAt, now + Math.min(cooldownMs, maxCooldownMs))) return
    const { limit } = this.#permits
    const cut = Math.max(1, Math.floor(limit * cutFactor))
    if (cut < limit) this.#move(limit, cut, 'the backend asked for fewer requests (429)')
  }

  #takeCredit(): void {
    for (;;) {
      const credit = Atomics.load(this.#credit, 0)
      const left = Math.max(0, credit - refusalWeight)
      if (Atomics.compareExchange(this.#credit, 0, credit, left) === credit) return
    }
  }

  #move(from: number, to: number, why: string): void {
    if (!this.#permits.tryResize(from, to)) return
    Atomics.store(this.#credit, 0, 0)
    this.#options.onChange(from, to, why)
  }
}
