import type { PlannedRollout } from '../rollout/index.ts'

/**
 * Plans that wait for a place, first come first served, from which one can be taken back. Unbounded by itself: the
 * service counts what it admits. Read once.
 */
export class PlanQueue implements AsyncIterable<PlannedRollout> {
  /** A map, because it keeps its order and gives up any of its members at once. */
  readonly #plans = new Map<string, PlannedRollout>()
  /** Kept from plan to plan: a new one would pass over everything that was deleted before. */
  #oldest = this.#plans.values()
  #wake: (() => void) | undefined
  #hasEnded = false

  push(plan: PlannedRollout): void {
    this.#plans.set(planId(plan), plan)
    this.#wakeReader()
  }

  /** The plan, if it still waits. */
  remove(id: string): PlannedRollout | undefined {
    const plan = this.#plans.get(id)
    this.#plans.delete(id)
    return plan
  }

  /** Nothing more comes; what waits is still handed out. */
  end(): void {
    this.#hasEnded = true
    this.#wakeReader()
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<PlannedRollout, void, void> {
    for (;;) {
      const plan = this.#shift()
      if (plan) {
        yield plan
        continue
      }
      if (this.#hasEnded) return
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
    }
  }

  #shift(): PlannedRollout | undefined {
    let next = this.#oldest.next()
    if (next.done) {
      // An iterator that came to the end stays there.
      this.#oldest = this.#plans.values()
      next = this.#oldest.next()
      if (next.done) return undefined
    }
    this.#plans.delete(planId(next.value))
    return next.value
  }

  #wakeReader(): void {
    const wake = this.#wake
    this.#wake = undefined
    wake?.()
  }
}

export function planId(plan: PlannedRollout): string {
  if (plan.kind === 'attempt') return plan.id
  return plan.kind === 'held' ? plan.held.record.id : plan.record.id
}
