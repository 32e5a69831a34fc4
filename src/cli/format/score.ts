import type { ScoreEstimate } from '../../eval/index.ts'

/** Of fewer tasks an interval says next to nothing: with two it may be wider than rewards from 0 to 1 can differ. */
const minTasks = 5

/** Three decimals, fewer for large values; a dash if there is no value. */
export function formatScore(score: number): string {
  if (!Number.isFinite(score)) return '–'
  const size = Math.abs(score)
  return score.toFixed(size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3)
}

/** `0.812 [0.776, 0.844]`, or only the mean if its interval is not worth showing. */
export function formatEstimate(estimate: ScoreEstimate | undefined): string {
  if (!estimate) return '–'
  const { mean, low, high } = estimate
  return hasEnoughTasks(estimate)
    ? `${formatScore(mean)} [${formatScore(low)}, ${formatScore(high)}]`
    : formatScore(mean)
}

/** What the brackets hold, or why there are none. */
export function intervalNote(estimate: ScoreEstimate | undefined): string {
  return estimate && hasEnoughTasks(estimate) ? '95% interval, clustered by task' : 'too few tasks for an interval'
}

function hasEnoughTasks({ tasks }: ScoreEstimate): boolean {
  return tasks >= minTasks
}
