import { MillraceError } from '../../errors/index.ts'
import { Resource, Semaphore } from '../../kit/index.ts'
import type { ModelConfig } from '../config.ts'
import type { CircuitBreaker } from './circuit-breaker.ts'
import type { LimitFeedback } from './in-flight.ts'
import { WeightVersions } from '../weight-versions.ts'
import type { RateShare } from './rate-limit.ts'

/** The shape of one limit: a model with its backends, or plain permits, which have none. A plain value that can be cloned. */
export interface LimitShape {
  readonly name: string
  readonly maxConcurrency: number
  readonly adaptive: boolean
  readonly backends: number
}

/** A breaker that opened or recovers in one worker, for the others. */
export interface BreakerEvent {
  readonly backend: number
  /** How long the breaker stays open; undefined if the backend answers again. */
  readonly openForMs?: number
}

/** What a worker is started with, so that it can open its end of the limits. */
export interface LimitsHandle {
  readonly shapes: readonly LimitShape[]
  readonly leaseholders: number
  readonly isReplacement: boolean
  readonly breakers: readonly (readonly BreakerEvent[])[]
  readonly workers: number
  readonly versions: readonly (readonly string[])[]
}

/** From a worker to the owner of the limits: the state of one limit there, and what happened since the last message. */
export interface LeaseMessage {
  readonly limit: number
  /** Permits that the worker has, and calls that wait for more. */
  readonly leased: number
  readonly wanted: number
  /** Whether the worker has calls of the model: those that have none leave their part of the rate to the others. */
  readonly isActive: boolean
  readonly returned: number
  readonly answered: number
  /** For each refusal that asked for fewer requests, the pause the server asked for. */
  readonly refusals: readonly number[]
  readonly breakers: readonly BreakerEvent[]
  /** Versions of the weights that the owner may not know. Left out if there are none. */
  readonly versions?: readonly string[]
}

export interface GrantMessage {
  readonly limit: number
  readonly granted: number
  /** Whether permits are to go back as soon as they are free: others have fewer and wait, or more are out than may be. */
  readonly isRecalled: boolean
  readonly leaseholders: number
  readonly breakers: readonly BreakerEvent[]
  /** All versions of the weights, as they are ordered for all workers. Left out if the worker knows the order. */
  readonly versions?: readonly string[]
}

/** How often unneeded permits are given back, and how soon the owner learns that a worker has no calls any more. */
const tickMs = 1000

/**
 * A worker's end of the limits. It asks for as many permits as calls wait for, and gives back those that were not needed for
 * a second, or every one as it comes free while others need it more. Close it after the models that use it.
 */
export class WorkerLimits extends Resource {
  /** How many workers divide the descriptors of this process. */
  readonly workers: number
  readonly #limits: readonly LeasedLimit[]
  // A model and plain permits may have the same name.
  readonly #models = new Map<string, LeasedLimit>()
  readonly #permits = new Map<string, Semaphore>()
  readonly #tick: NodeJS.Timeout

  /** `send` reaches the owner's `LimitLease.receive`. */
  constructor(handle: LimitsHandle, send: (message: LeaseMessage) => void) {
    super()
    this.workers = handle.workers
    this.#limits = handle.shapes.map(({ name, backends }, index) => {
      const limit = new LeasedLimit(index, handle, send)
      if (backends > 0) this.#models.set(name, limit)
      else this.#permits.set(name, limit.permits)
      return limit
    })
    this.#tick = setInterval(() => {
      for (const limit of this.#limits) limit.tick()
    }, tickMs)
    this.#tick.unref()
  }

  model(name: string): LeasedLimit {
    return known(this.#models, name)
  }

  permits(name: string): Semaphore {
    return known(this.#permits, name)
  }

  receive(message: GrantMessage): void {
    if (!this.isClosed) this.#limits[message.limit]?.receive(message)
  }

  /** Leased permits go back when the owner sees the worker end. */
  protected onClose(): void {
    clearInterval(this.#tick)
    for (const limit of this.#limits) limit.close()
  }
}

/** The limits of a model in a worker that shares them with others. */
export class LeasedLimit implements LimitFeedback {
  readonly permits: Semaphore
  readonly rate: RateShare
  readonly versions: WeightVersions
  readonly #index: number
  readonly #send: (message: LeaseMessage) => void
  #breakers: readonly CircuitBreaker[] = []
  /** For each backend, whether its breaker is open as far as the owner knows. */
  #open: boolean[] = []
  /** The breakers that were open before there were any here. */
  readonly #firstNews: readonly BreakerEvent[]
  #leased = 0
  #isRecalled = false
  /** Leased permits that were not in use at the last tick. */
  #idle = 0
  #reportedWanted = 0
  #reportedActive = false
  /** Replies and refusals that the owner has not been told of. */
  #answered = 0
  #refusals: number[] = []
  /** Versions that a backend named here, and that are not in the owner's order yet. */
  #newVersions: string[] = []
  #nextReport: NodeJS.Immediate | undefined

  constructor(
    index: number,
    { leaseholders, isReplacement, breakers, versions }: LimitsHandle,
    send: (message: LeaseMessage) => void,
  ) {
    this.#index = index
    this.#send = send
    this.#firstNews = breakers[index] ?? []
    this.versions = new WeightVersions((version) => {
      this.#newVersions.push(version)
      this.reportSoon()
    })
    this.versions.replace(versions[index] ?? [])
    this.rate = { leaseholders, waiting: 0, startsEmpty: isReplacement }
    this.permits = new Semaphore(0, Number.POSITIVE_INFINITY, {
      onWait: () => this.reportSoon(),
      onRelease: () => {
        if (this.#isRecalled) this.reportSoon()
      },
    })
  }

  /** Keeps the breakers before the backends, in their order, in step with those of the other workers. */
  attach(breakers: readonly CircuitBreaker[]): void {
    this.#breakers = breakers
    this.#open = breakers.map(() => false)
    this.#follow(this.#firstNews)
  }

  onSuccess(): void {
    this.#answered += 1
  }

  onRateLimited(retryAfterMs = 0): void {
    this.#refusals.push(retryAfterMs)
    this.reportSoon()
  }

  receive({ granted, isRecalled, leaseholders, breakers, versions }: GrantMessage): void {
    this.rate.leaseholders = leaseholders
    if (versions) this.#followVersions(versions)
    this.#leased += granted
    this.#isRecalled = isRecalled
    // Granted permits go to calls that wait, even while permits that come free are recalled.
    this.permits.resize(isRecalled ? this.permits.held + granted : this.#leased)
    if (isRecalled) {
      this.permits.resize(0)
      this.reportSoon()
    }
    this.#follow(breakers)
  }

  tick(): void {
    const idle = this.#leased - this.permits.held
    const returned = Math.min(this.#idle, idle)
    this.#idle = idle - returned
    const hasChanged = this.permits.waiting !== this.#reportedWanted || this.#isActive !== this.#reportedActive
    if (hasChanged || returned > 0 || this.#answered > 0) this.#report(returned)
  }

  close(): void {
    clearImmediate(this.#nextReport)
  }

  get #isActive(): boolean {
    return this.permits.held + this.permits.waiting + this.rate.waiting > 0
  }

  #follow(news: readonly BreakerEvent[]): void {
    for (const { backend, openForMs } of news) {
      this.#open[backend] = openForMs !== undefined
      this.#breakers[backend]?.follow(openForMs)
    }
  }

  #followVersions(versions: readonly string[]): void {
    const own = this.#newVersions.filter((version) => !versions.includes(version))
    this.#newVersions = []
    this.versions.replace(versions)
    for (const version of own) this.versions.note(version)
  }

  /** The breakers that opened or recover since the owner was told. */
  #breakerEvents(): BreakerEvent[] {
    return this.#breakers.flatMap((breaker, backend): BreakerEvent[] => {
      if (breaker.isOpen === this.#open[backend]) return []
      this.#open[backend] = breaker.isOpen
      return [breaker.isOpen ? { backend, openForMs: breaker.dueInMs } : { backend }]
    })
  }

  /** All changes in one turn of the loop go in one message, also that a breaker opened or recovers. */
  reportSoon(): void {
    this.#nextReport ??= setImmediate(() => {
      this.#report(this.#isRecalled ? this.#leased - this.permits.held : 0)
    })
  }

  #report(returned: number): void {
    clearImmediate(this.#nextReport)
    this.#nextReport = undefined
    this.#leased -= returned
    if (!this.#isRecalled) this.permits.resize(this.#leased)
    this.#reportedWanted = this.permits.waiting
    this.#reportedActive = this.#isActive
    this.#send({
      limit: this.#index,
      leased: this.#leased,
      wanted: this.#reportedWanted,
      isActive: this.#reportedActive,
      returned,
      answered: this.#answered,
      refusals: this.#refusals,
      breakers: this.#breakerEvents(),
      ...(this.#newVersions.length > 0 && { versions: [...this.#newVersions] }),
    })
    this.#answered = 0
    this.#refusals = []
  }
}

export function shapeOf({ name, maxConcurrency, adaptive, simulator, backends }: ModelConfig): LimitShape {
  return { name, maxConcurrency, adaptive, backends: simulator ? 1 : backends.length }
}

function known<Limit>(limits: ReadonlyMap<string, Limit>, name: string): Limit {
  const limit = limits.get(name)
  if (limit !== undefined) return limit
  throw new MillraceError('internal', `there is no limit named ${name}. Add it where the shared limits are created.`)
}
