import type { ScoreEstimate } from './progress.ts'
import { studentT95 } from './student-t.ts'

/**
 * A running mean over rollouts whose 95% interval is clustered by task: rollouts of one task resemble each other, so tasks,
 * not rollouts, are what was sampled. With S and n the sum and count of a task, m = ΣS/Σn and G tasks, the variance of the
 * mean is G/(G-1) · Σ(S - m·n)² / (Σn)², and the interval uses Student's t with G-1 degrees of freedom.
 *
 * The square is multiplied out, so five sums are all that is kept. They are taken over values shifted by the first task's
 * mean, which changes nothing in exact arithmetic and keeps rewards far from zero from cancelling each other out.
 */
export class ClusteredMean {
  #shift = 0
  #tasks = 0
  #rollouts = 0
  #sum = 0
  #sumSquared = 0
  #sumTimesCount = 0
  #countSquared = 0

  /** Adds one task: the sum of its rewards and how many of its rollouts had one. A task without rewards is left out. */
  add(sum: number, count: number): void {
    if (count === 0) return
    if (this.#tasks === 0) this.#shift = sum / count
    const shifted = sum - this.#shift * count
    this.#tasks += 1
    this.#rollouts += count
    this.#sum += shifted
    this.#sumSquared += shifted * shifted
    this.#sumTimesCount += shifted * count
    this.#countSquared += count * count
  }

  copy(): ClusteredMean {
    const copy = new ClusteredMean()
    copy.#shift = this.#shift
    copy.#tasks = this.#tasks
    copy.#rollouts = this.#rollouts
    copy.#sum = this.#sum
    copy.#sumSquared = this.#sumSquared
    copy.#sumTimesCount = this.#sumTimesCount
    copy.#countSquared = this.#countSquared
    return copy
  }

  estimate(): ScoreEstimate | undefined {
    if (this.#tasks === 0) return undefined
    const shiftedMean = this.#sum / this.#rollouts
    const mean = this.#shift + shiftedMean
    const half = this.#halfWidth(shiftedMean)
    return { mean, low: mean - half, high: mean + half, rollouts: this.#rollouts, tasks: this.#tasks }
  }

  #halfWidth(shiftedMean: number): number {
    const tasks = this.#tasks
    if (tasks < 2) return Number.NaN
    const residuals =
      this.#sumSquared - 2 * shiftedMean * this.#sumTimesCount + shiftedMean * shiftedMean * this.#countSquared
    // Rounding can leave a tiny negative where all tasks agree.
    const variance = ((tasks / (tasks - 1)) * Math.max(0, residuals)) / (this.#rollouts * this.#rollouts)
    return studentT95(tasks - 1) * Math.sqrt(variance)
  }
}
