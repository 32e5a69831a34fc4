import type { ModelStatus } from '../inference/index.ts'

type Counts = Pick<ModelStatus, 'calls' | 'tries'>

/**
 * What worker processes have asked of models, each by its own count, which is in the report that comes before its last
 * answer. What the limits know of a process may be a second old. Bounded by the models of a run.
 */
export class CallCounts {
  readonly #counts: Map<string, Counts>

  constructor(before?: CallCounts) {
    this.#counts = new Map(before ? before.#counts : [])
  }

  add(models: readonly ModelStatus[]): void {
    for (const { name, calls, tries } of models) {
      const before = this.#counts.get(name)
      this.#counts.set(name, { calls: (before?.calls ?? 0) + calls, tries: (before?.tries ?? 0) + tries })
    }
  }

  /** The model with these counts instead of its own. */
  appliedTo(model: ModelStatus): ModelStatus {
    return { ...model, ...this.#counts.get(model.name) }
  }
}
