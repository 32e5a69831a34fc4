import type { Progress } from '../../../eval/index.ts'

const shortestWindowMs = 10_000
/** The window as a share of the elapsed time: long runs need a longer window, because their rollouts are longer too. */
const windowShare = 0.2
const samplesPerWindow = 20

interface Sample {
  readonly atMs: number
  readonly ended: number
}

/**
 * Measures how fast a run goes now, rather than on average since its start: after a resume, or a backend's standstill, the
 * average would mislead for as long again. Keeps about twenty samples, whatever the length of the run.
 */
export class RecentRate {
  readonly #samples: Sample[] = []
  #first: Sample | undefined

  /** The progress with its rate and time left computed from the recent past. */
  apply(progress: Progress): Progress {
    const now: Sample = { atMs: progress.elapsedMs, ended: progress.ended }
    this.#first ??= now
    const windowMs = Math.max(shortestWindowMs, progress.elapsedMs * windowShare)
    this.#keep(now, windowMs)
    // If nothing ended lately, rollouts may just be long: then the average since the start is used.
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
    // The oldest sample that is kept is the one just outside the window.
    while ((samples[1]?.atMs ?? Infinity) <= now.atMs - windowMs) samples.shift()
  }
}

function between(from: Sample, to: Sample): number {
  const ms = to.atMs - from.atMs
  return ms > 0 ? ((to.ended - from.ended) / ms) * 1000 : 0
}
