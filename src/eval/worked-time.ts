import type { RunFile } from '../store/index.ts'

/** How long a run was worked on in its sittings. One that was cut off counts up to the last rollout that ended in it. */
export class WorkedTime {
  readonly #sittings: RunFile['sittings']
  readonly #starts: readonly number[]
  /** By sitting: only the latest end within each is of use. */
  readonly #lastEnds: number[] = []

  constructor(sittings: RunFile['sittings']) {
    this.#sittings = sittings
    this.#starts = sittings.map(({ startedAt }) => Date.parse(startedAt))
  }

  /** A rollout has ended then. */
  noteEnd(at: number): void {
    const index = this.#starts.findLastIndex((start) => start <= at)
    if (index >= 0) this.#lastEnds[index] = Math.max(this.#lastEnds[index] ?? 0, at)
  }

  /** Until `now`, if that is given and the last sitting goes on. */
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
