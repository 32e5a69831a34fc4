import type { ScoreEstimate } from './progress.ts'
import { studentT95 } from './student-t.ts'

/** The rewards of one task. */
export interface TaskRewards {
  readonly sum: number
  readonly count: number
  /** Whether each of the rewards is 0 or 1. */
  readonly isBinary: boolean
}

export function isBinaryReward(reward: number): boolean {
  return reward === 0 || reward === 1
}

/**
 * A running mean over rollouts whose 95% interval is clustered by task: rollouts of one task resemble each other, so tasks,
 * not rollouts, are what was sampled. With S and n the sum and count of a task, m = ΣS/Σn and G tasks, the variance of the
 * mean is V = G/(G-1) · Σ(S - m·n)² / (Σn)². The interval uses t, the quantile of Student's distribution with G-1 degrees of
 * freedom: it is m ± t·√V for rewards of any kind.
 *
 * If every reward is 0 or 1, that interval could leave 0 to 1, and would have no width where all rewards agree. It is then
 * Wilson's interval for a share, with t, over the effective number of rollouts N = m(1-m)/V: the number of independent ones that
 * would have this variance (Kott and Carr). N is at most the number of rollouts. Where m is 0 or 1 nothing tells how much
 * rollouts of one task resemble each other, so N is as if they all were the same: (Σn)²/Σn² · (G-1)/G.
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
  #isBinary = true

  /** Adds one task. A task without rewards is left out. */
  add({ sum, count, isBinary }: TaskRewards): void {
    if (count === 0) return
    this.#isBinary &&= isBinary
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
    copy.#isBinary = this.#isBinary
    return copy
  }

  estimate(): ScoreEstimate | undefined {
    if (this.#tasks === 0) return undefined
    const shiftedMean = this.#sum / this.#rollouts
    const mean = this.#shift + shiftedMean
    const variance = this.#variance(shiftedMean)
    const { low, high } = this.#isBinary ? this.#shareInterval(mean, variance) : this.#meanInterval(mean, variance)
    return { mean, low, high, standardError: Math.sqrt(variance), rollouts: this.#rollouts, tasks: this.#tasks }
  }

  #variance(shiftedMean: number): number {
    const tasks = this.#tasks
    if (tasks < 2) return Number.NaN
    const residuals =
      this.#sumSquared - 2 * shiftedMean * this.#sumTimesCount + shiftedMean * shiftedMean * this.#countSquared
    // Rounding can leave a tiny negative where all tasks agree.
    return ((tasks / (tasks - 1)) * Math.max(0, residuals)) / (this.#rollouts * this.#rollouts)
  }

  #meanInterval(mean: number, variance: number): { low: number; high: number } {
    const half = studentT95(this.#tasks - 1) * Math.sqrt(variance)
    return { low: mean - half, high: mean + half }
  }

  /** Wilson's interval, for rewards that are 0 or 1. */
  #shareInterval(share: number, variance: number): { low: number; high: number } {
    const tasks = this.#tasks
    if (tasks < 2) return { low: Number.NaN, high: Number.NaN }
    const spread = share * (1 - share)
    const isConstant = spread <= 0
    const effective = isConstant
      ? (this.#rollouts ** 2 / this.#countSquared) * ((tasks - 1) / tasks)
      : Math.min(spread / variance, this.#rollouts)
    const reach = studentT95(tasks - 1) ** 2 / effective
    const centre = (share + reach / 2) / (1 + reach)
    const half = Math.sqrt(reach * (Math.max(0, spread) + reach / 4)) / (1 + reach)
    // Rounding can leave a limit a little outside, and a share of 0 or 1 is a limit itself.
    return {
      low: isConstant && share < 0.5 ? 0 : Math.max(0, centre - half),
      high: isConstant && share > 0.5 ? 1 : Math.min(1, centre + half),
    }
  }
}
