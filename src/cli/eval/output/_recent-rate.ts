import type { Progress } from '../../../eval/index.ts'

const shortestWindowMs = 10_000
/** Of the time since the start: long runs are judged by a longer stretch, because their rollouts are longer too. */
const windowShare = 0.2
const samplesPerWindow = 20

interface Sample {
  readonly atMs: number
  readonly ended: number
}

/**
 * How fast a run goes now, rather than on average since it began: after a resume, or a backend that stood still for a
 * while, the average would mislead for as long again. Keeps about twenty samples, whatever the length of the run.
 */
export class RecentRate {
  readonly #samples: Sample[] = []
  #first: Sample | undefined

  /** The progress with its rate and time left by the recent past. */
  apply(progress: Progress): Progress {
    const now: Sample = { atMs: progress.elapsedMs, ended: progress.ended }
    this.#first ??= now
    const windowMs = Math.max(shortestWindowMs, progress.elapsedMs * windowShare)
    this.#keep(now, windowMs)
    // Where nothing ended lately, rollouts may just be long: then the average has to do.
    const perSecond = between(this.#samples[0] ?? now, now) || between(this.#first, now)
    const { total } = progress
    const left = total && Math.max(0, total.count - progress.ended)
    return {
      ...progress,
      perSecond,
      etaMs: left !== undefined && perSecond > 0 ? (left / perSecond) * 1000 : undefined,
    }
  }

  #keep(now: Sample, windowMs: number): void {
    const samples = this.#samples
    const last = samples.at(-1)
    if (!last || now.atMs - last.atMs >= windowMs / samplesPerWindow) samples.push(now)
    // The oldest kept is the one just outside the window.
    while ((samples[1]?.atMs ?? Infinity) <= now.atMs - windowMs) samples.shift()
  }
}

function between(from: Sample, to: Sample): number {
  const ms = to.atMs - from.atMs
  return ms > 0 ? ((to.ended - from.ended) / ms) * 1000 : 0
}
