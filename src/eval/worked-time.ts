import type { RunFile } from '../store/index.ts'

/** How long a run was worked on in its sittings. A sitting that was cut off counts up to its last ended rollout. */
export class WorkedTime {
  readonly #sittings: RunFile['sittings']
  readonly #starts: readonly number[]
  /** By sitting: the latest end of a rollout. */
  readonly #lastEnds: number[] = []

  constructor(sittings: RunFile['sittings']) {
    this.#sittings = sittings
    this.#starts = sittings.map(({ startedAt }) => Date.parse(startedAt))
  }

  /** A rollout ended at this time. */
  noteEnd(at: number): void {
    const index = this.#starts.findLastIndex((start) => start <= at)
    if (index >= 0) this.#lastEnds[index] = Math.max(this.#lastEnds[index] ?? 0, at)
  }

  /** The sum over all sittings. If the last one still goes on, it counts until `now`. */
  sumMs(now?: number): number {
    let sum = 0
    for (const [index, sitting] of this.#sittings.entries()) {
      const start = this.#starts[index] ?? 0
      const isLast = index === this.#sittings.length - 1
      const cutOffAt = (isLast ? now : undefined) ?? this.#lastEnds[index] ?? start
      const end = sitting.endedAt === undefined ? cutOffAt : Date.parse(sitting.endedAt)
      sum += sitting.workedMs ?? Math.max(0, end - start)
    }
    return sum
  }
}
