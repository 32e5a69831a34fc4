import { MillraceError } from '../../errors/index.ts'
import { Resource, type Semaphore } from '../../kit/index.ts'
import type { ModelLimits } from './model-limits.ts'
import type { LimitShape } from './shared-limits-cells.ts'

/** The limits of a worker, by name. A model and plain permits may have the same name. */
export abstract class NamedLimits extends Resource {
  readonly #models = new Map<string, ModelLimits>()
  readonly #permits = new Map<string, Semaphore>()

  model(name: string): ModelLimits {
    return known(this.#models, name)
  }

  permits(name: string): Semaphore {
    return known(this.#permits, name)
  }

  protected add({ name, backends }: LimitShape, limits: ModelLimits): void {
    if (backends > 0) this.#models.set(name, limits)
    else this.#permits.set(name, limits.permits)
  }
}

function known<Limit>(limits: ReadonlyMap<string, Limit>, name: string): Limit {
  const limit = limits.get(name)
  if (limit !== undefined) return limit
  throw new MillraceError('internal', `no limit is named ${name}. Name it where the shared limits are created.`)
}
