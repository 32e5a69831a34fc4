/**
 * A mean with its 95% interval, clustered by task. If every reward is 0 or 1, the interval is within 0 and 1, and the mean need
 * not be in its middle. `low`, `high` and `standardError` are NaN with fewer than two tasks.
 */
export interface ScoreEstimate {
  readonly mean: number
  readonly low: number
  readonly high: number
  readonly standardError: number
  readonly rollouts: number
  readonly tasks: number
}

export interface TaskRewards {
  readonly sum: number
  readonly count: number
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
  #sums = {
    shift: 0,
    tasks: 0,
    rollouts: 0,
    sum: 0,
    sumSquared: 0,
    sumTimesCount: 0,
    countSquared: 0,
    isBinary: true,
  }

  add({ sum, count, isBinary }: TaskRewards): void {
    if (count === 0) return
    const sums = this.#sums
    sums.isBinary &&= isBinary
    if (sums.tasks === 0) sums.shift = sum / count
    const shifted = sum - sums.shift * count
    sums.tasks += 1
    sums.rollouts += count
    sums.sum += shifted
    sums.sumSquared += shifted * shifted
    sums.sumTimesCount += shifted * count
    sums.countSquared += count * count
  }

  copy(): ClusteredMean {
    const copy = new ClusteredMean()
    copy.#sums = { ...this.#sums }
    return copy
  }

  estimate(): ScoreEstimate | undefined {
    if (this.#sums.tasks === 0) return undefined
    const shiftedMean = this.#sums.sum / this.#sums.rollouts
    const mean = this.#sums.shift + shiftedMean
    const variance = this.#variance(shiftedMean)
    const { rollouts, tasks, isBinary } = this.#sums
    const standardError = Math.sqrt(variance)
    const half = studentT95(tasks - 1) * standardError
    const interval = isBinary ? this.#shareInterval(mean, variance) : { low: mean - half, high: mean + half }
    return { mean, ...interval, standardError, rollouts, tasks }
  }

  #variance(shiftedMean: number): number {
    const { tasks, rollouts, sumSquared, sumTimesCount, countSquared } = this.#sums
    if (tasks < 2) return Number.NaN
    const residuals = sumSquared - 2 * shiftedMean * sumTimesCount + shiftedMean * shiftedMean * countSquared
    // Rounding can leave a tiny negative where all tasks agree.
    return ((tasks / (tasks - 1)) * Math.max(0, residuals)) / rollouts ** 2
  }

  /** Wilson's interval, for rewards that are 0 or 1. */
  #shareInterval(share: number, variance: number): { low: number; high: number } {
    const { tasks, rollouts, countSquared } = this.#sums
    if (tasks < 2) return { low: Number.NaN, high: Number.NaN }
    const spread = share * (1 - share)
    const isConstant = spread <= 0
    const effective = isConstant
      ? (rollouts ** 2 / countSquared) * ((tasks - 1) / tasks)
      : Math.min(spread / variance, rollouts)
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

// The two-sided 95% point of the normal distribution, and the coefficients that correct it for few degrees of freedom
// (Cornish-Fisher, Abramowitz & Stegun 26.7.5), worked out once because only this level is used.
const z = 1.959963984540054
const corrections = [
  (z ** 3 + z) / 4,
  (5 * z ** 5 + 16 * z ** 3 + 3 * z) / 96,
  (3 * z ** 7 + 19 * z ** 5 + 17 * z ** 3 - 15 * z) / 384,
  (79 * z ** 9 + 776 * z ** 7 + 1482 * z ** 5 - 1920 * z ** 3 - 945 * z) / 92160,
]

/** Exact for 1 and 2 degrees; from there at most 0.15% low (3 degrees), and under 0.01% from 6 on. */
export function studentT95(degrees: number): number {
  if (degrees < 1) return Number.NaN
  if (degrees === 1) return Math.tan(Math.PI * 0.475)
  if (degrees === 2) return 0.95 * Math.sqrt(2 / (1 - 0.95 * 0.95))
  let sum = z
  let power = 1
  for (const correction of corrections) {
    power /= degrees
    sum += correction * power
  }
  return sum
}
