import { MillraceError } from '../errors/index.ts'
import { SharedLimits, type LimitChange, type ModelConfig, type ModelStatus } from '../inference/index.ts'
import { Resource } from '../kit/index.ts'
import { judgePermits } from '../rollout/index.ts'
import type { LimitsPlace } from './worker-channel.ts'

export interface PoolLimitsOptions {
  readonly models: readonly ModelConfig[]
  readonly judgeConcurrency: number
  /** The most workers there may be at once. */
  readonly places: number
  readonly onLimitChange: (change: LimitChange) => void
}

/** The limits of the models, which hold for all workers of a pool together, and the places in them. */
export class PoolLimits extends Resource {
  readonly #shared: SharedLimits
  readonly #free: number[]

  constructor({ models, judgeConcurrency, places, onLimitChange }: PoolLimitsOptions) {
    super()
    this.#shared = SharedLimits.create(models, {
      slots: places,
      permits: { [judgePermits]: judgeConcurrency },
      onLimitChange,
    })
    this.#free = Array.from({ length: places }, (_, place) => place)
  }

  /** Takes a place. `giveBack` must be called only when the worker is really gone: until then it may hold permits. */
  take(workers: number): LimitsPlace & { giveBack(): void } {
    const place = this.#free.shift()
    if (place === undefined) {
      throw new MillraceError(
        'worker_lost',
        'too many workers were ended and are still not gone: something in them cannot be interrupted. What has ended is kept: run the same again.',
      )
    }
    return {
      handle: () => this.#shared.handle(place, { workers }),
      lease: (send) => this.#shared.lease(place, send),
      giveBack: () => {
        if (this.isClosed) return
        this.#shared.reclaim(place)
        this.#free.push(place)
      },
    }
  }

  status(): readonly ModelStatus[] {
    return this.#shared.status()
  }

  protected onClose(): Promise<void> {
    return this.#shared.close()
  }
}
