import { MillraceError } from '../../errors/index.ts'
import type { ModelConfig } from '../config.ts'
import type { LimitChange } from '../model-client.ts'
import { WeightVersions } from '../weight-versions.ts'
import { AdaptiveLimit } from './in-flight.ts'
import {
  shapeOf,
  type BreakerEvent,
  type GrantMessage,
  type LeaseMessage,
  type LimitShape,
  type LimitsHandle,
} from './worker-limits.ts'

export interface SharedLimitsOptions {
  /** How many workers can have a lease at the same time, including those that overlap when one replaces another. */
  readonly maxLeases: number
  readonly permits?: Readonly<Record<string, number>>
  readonly onLimitChange?: (change: LimitChange) => void
}

/** The limits of a model, or plain permits, for all workers together. */
export interface LimitStatus {
  readonly name: string
  readonly limit: number
  /** Permits that workers have, used or not, and permits that they wait for. */
  readonly leased: number
  readonly wanted: number
}

/** The limits of all models, leased to many workers. When a worker is gone, close its lease. */
export class SharedLimits {
  /** The most workers that can share limits. */
  static readonly maxLeases = 255
  readonly #shapes: readonly LimitShape[]
  readonly #limits: readonly SharedLimit[]
  readonly #maxLeases: number
  readonly #leases = new Set<LimitLease>()
  #hasReplaced = false

  constructor(models: readonly ModelConfig[], { maxLeases, permits = {}, onLimitChange }: SharedLimitsOptions) {
    if (maxLeases > SharedLimits.maxLeases) {
      throw new MillraceError('config_invalid', `at most ${SharedLimits.maxLeases} workers can share limits: use fewer`)
    }
    this.#maxLeases = maxLeases
    this.#shapes = [
      ...models.map(shapeOf),
      ...Object.entries(permits).map(([name, maxConcurrency]) => {
        return { name, maxConcurrency, adaptive: false, backends: 0 }
      }),
    ]
    this.#limits = this.#shapes.map((shape, index) => new SharedLimit(index, shape, onLimitChange))
  }

  get isFull(): boolean {
    return this.#leases.size >= this.#maxLeases
  }

  /** The lease of a worker. Messages are passed on both ways, in order. */
  lease(send: (message: GrantMessage) => void, { workers = 1 }: { workers?: number } = {}): LimitLease {
    if (this.isFull) {
      throw new MillraceError('internal', `all ${this.#maxLeases} leases are taken. Close the leases of ended workers.`)
    }
    const shares = this.#limits.map((limit) => limit.join(send))
    const handle: LimitsHandle = {
      shapes: this.#shapes,
      leaseholders: this.#leases.size + 1,
      isReplacement: this.#hasReplaced,
      breakers: this.#limits.map((limit, index) => limit.newsFor(shares[index] as LimitShare)),
      workers,
      versions: this.#limits.map((limit) => [...limit.versions.all]),
    }
    let isClosed = false
    const lease: LimitLease = {
      handle,
      receive: (message) => {
        const share = shares[message.limit]
        if (share && !isClosed) this.#limits[message.limit]?.receive(share, message)
      },
      close: () => {
        if (isClosed) return
        isClosed = true
        this.#hasReplaced = true
        this.#leases.delete(lease)
        for (const [index, limit] of this.#limits.entries()) limit.remove(shares[index] as LimitShare)
      },
    }
    this.#leases.add(lease)
    for (const limit of this.#limits) limit.settle()
    return lease
  }

  status(): readonly LimitStatus[] {
    return this.#limits.flatMap((limit) => (limit.shape.backends === 0 ? [] : [limit.status()]))
  }
}

/** The owner's end of the limits of one worker. `handle` goes into the start message of the worker. */
export interface LimitLease {
  readonly handle: LimitsHandle
  /** Takes a message of the worker. Ignored once the lease is closed, because its permits were taken back. */
  receive(message: LeaseMessage): void
  /** Takes back all that the worker held, because it is gone. */
  close(): void
}

interface LimitShare {
  readonly send: (message: GrantMessage) => void
  held: number
  wanted: number
  isActive: boolean
  /** Permits among those held that the worker has not been told of. */
  granted: number
  isRecalled: boolean
  leaseholders: number
  readonly open: boolean[]
  /** Whether the worker is to be sent the versions of the weights. */
  lacksVersions: boolean
}

class SharedLimit {
  readonly shape: LimitShape
  readonly versions = new WeightVersions(() => {
    for (const share of this.#shares) share.lacksVersions = true
  })
  readonly #index: number
  readonly #adaptive: AdaptiveLimit
  /** The least recently served comes first. */
  readonly #shares = new Set<LimitShare>()
  /** Until when the breaker of each backend is open; undefined if it is closed. */
  readonly #openUntil: (number | undefined)[]
  #limit: number

  constructor(index: number, shape: LimitShape, onLimitChange?: (change: LimitChange) => void) {
    const { name: model, maxConcurrency, adaptive, backends } = shape
    this.shape = shape
    this.#index = index
    this.#limit = maxConcurrency
    this.#openUntil = Array.from({ length: backends }, () => undefined)
    this.#adaptive = new AdaptiveLimit({
      maxConcurrency,
      adaptive,
      permits: this,
      onChange: (from, to, why) => onLimitChange?.({ model, at: Date.now(), kind: 'concurrency', from, to, why }),
    })
  }

  get limit(): number {
    return this.#limit
  }

  resize(limit: number): void {
    this.#limit = limit
  }

  join(send: LimitShare['send']): LimitShare {
    const open = this.#openUntil.map(() => false)
    const share: LimitShare = {
      send,
      held: 0,
      wanted: 0,
      isActive: false,
      granted: 0,
      isRecalled: false,
      leaseholders: this.#shares.size + 1,
      open,
      lacksVersions: false,
    }
    this.#shares.add(share)
    return share
  }

  remove(share: LimitShare): void {
    this.#shares.delete(share)
    this.settle()
  }

  receive(share: LimitShare, message: LeaseMessage): void {
    const { leased, wanted, isActive, returned, answered, refusals, breakers, versions = [] } = message
    share.held -= returned
    // Permits that are still on their way to the worker will serve some of the calls that wait.
    share.wanted = Math.max(0, wanted - (share.held - leased))
    share.isActive = isActive
    for (let count = 0; count < answered; count += 1) this.#adaptive.onSuccess()
    for (const retryAfterMs of refusals) this.#adaptive.onRateLimited(retryAfterMs)
    for (const { backend, openForMs } of breakers) {
      this.#openUntil[backend] = openForMs === undefined ? undefined : performance.now() + openForMs
      share.open[backend] = openForMs !== undefined
    }
    for (const version of versions) {
      this.versions.note(version)
      // Also a version that is known is confirmed.
      share.lacksVersions = true
    }
    this.settle()
  }

  status(): LimitStatus {
    const { name } = this.shape
    return { name, limit: this.#limit, leased: this.#held, wanted: this.#sum(({ wanted }) => wanted) }
  }

  /** The breakers that opened or recover since the worker was told. */
  newsFor({ open }: LimitShare): BreakerEvent[] {
    return this.#openUntil.flatMap((until, backend): BreakerEvent[] => {
      if (open[backend] === (until !== undefined)) return []
      open[backend] = until !== undefined
      return [until === undefined ? { backend } : { backend, openForMs: Math.max(0, until - performance.now()) }]
    })
  }

  /** Grants the permits that are free, and tells each worker what has changed for it. */
  settle(): void {
    for (let free = this.#limit - this.#held; free > 0; free -= 1) {
      const neediest = this.#neediest()
      if (!neediest) break
      neediest.held += 1
      neediest.wanted -= 1
      neediest.granted += 1
      this.#shares.delete(neediest)
      this.#shares.add(neediest)
    }
    const fewest = this.#neediest()?.held ?? Number.POSITIVE_INFINITY
    const active = this.#sum(({ isActive }) => (isActive ? 1 : 0))
    for (const share of this.#shares) this.#tell(share, fewest, Math.max(1, active))
  }

  /**
   * Permits are recalled from a worker if too many are out, or if another one waits that has none, or at least two fewer
   * (`fewest`). A worker without calls is given all workers as leaseholders, so that it begins with a small part of the rate.
   */
  #tell(share: LimitShare, fewest: number, active: number): void {
    const { held, granted } = share
    const isRecalled = this.#held > this.#limit || fewest < held - 1 || (fewest === 0 && held > 0)
    const leaseholders = share.isActive ? active : this.#shares.size
    const breakers = this.newsFor(share)
    const { lacksVersions } = share
    const hasChanged =
      granted > 0 || isRecalled !== share.isRecalled || leaseholders !== share.leaseholders || breakers.length > 0
    if (!hasChanged && !lacksVersions) return
    share.lacksVersions = false
    share.granted = 0
    share.isRecalled = isRecalled
    share.leaseholders = leaseholders
    const versions = lacksVersions && { versions: [...this.versions.all] }
    share.send({ limit: this.#index, granted, isRecalled, leaseholders, breakers, ...versions })
  }

  /** Of the workers that wait, the one with the fewest permits; among equals the least recently served. */
  #neediest(): LimitShare | undefined {
    let neediest: LimitShare | undefined
    for (const share of this.#shares) {
      if (share.wanted > 0 && (!neediest || share.held < neediest.held)) neediest = share
    }
    return neediest
  }

  get #held(): number {
    return this.#sum(({ held }) => held)
  }

  #sum(count: (share: LimitShare) => number): number {
    let sum = 0
    for (const share of this.#shares) sum += count(share)
    return sum
  }
}
