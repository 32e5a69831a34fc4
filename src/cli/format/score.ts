import type { ScoreEstimate } from '../../eval/index.ts'

/** Three decimals, fewer for large values; a dash if there is no value. */
export function formatScore(score: number): string {
  if (!Number.isFinite(score)) return '–'
  const size = Math.abs(score)
  return score.toFixed(size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3)
}

/** `0.812 ± 0.034`, or only the mean if there is no interval yet. */
export function formatEstimate(estimate: ScoreEstimate | undefined): string {
  if (!estimate) return '–'
  const half = (estimate.high - estimate.low) / 2
  return Number.isFinite(half) ? `${formatScore(estimate.mean)} ± ${formatScore(half)}` : formatScore(estimate.mean)
}
