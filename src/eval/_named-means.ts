interface NamedSum {
  sum: number
  rollouts: number
  weight: number
}

/** More names are a mistake, such as a task's id in a metric's name; each rollout's record has them all anyway. */
const maxNames = 200

/** Means by name, each over the rollouts that have it. Names past the limit are left out. */
export class NamedMeans {
  readonly #sums = new Map<string, NamedSum>()

  add(name: string, value: number, weight: number): void {
    let entry = this.#sums.get(name)
    if (!entry) {
      if (this.#sums.size >= maxNames) return
      entry = { sum: 0, rollouts: 0, weight }
      this.#sums.set(name, entry)
    }
    entry.sum += value
    entry.rollouts += 1
    entry.weight = weight
  }

  means(): Record<string, { mean: number; rollouts: number; weight: number }> {
    return Object.fromEntries(
      Array.from(this.#sums, ([name, { sum, rollouts, weight }]) => [name, { mean: sum / rollouts, rollouts, weight }]),
    )
  }
}
