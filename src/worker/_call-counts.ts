import type { ModelStatus } from '../inference/index.ts'

type Counts = Pick<ModelStatus, 'calls' | 'tries'>

/**
 * How many calls and tries worker processes have made, by model. Each process counts its own and reports them before its last
 * answer; the shared limits may know of them a second late. Bounded by the models of a run.
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
