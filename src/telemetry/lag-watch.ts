import type { LoopLagWindow } from '../kit/index.ts'
import type { WorkerStatus } from '../rollout/index.ts'
import type { Logger } from './logger.ts'

export interface LagWatchOptions {
  readonly logger: Pick<Logger, 'lines'>
  readonly thresholdMs: number
  readonly loops: () => Readonly<Record<string, LoopLagWindow>>
  readonly workers: () => readonly WorkerStatus[]
}

const lookEveryMs = 500

/** Logs when a loop starts to lag and when it stops, with what blocked it: once per crossing, however long it lasts. */
export class LagWatch implements Disposable {
  readonly #options: LagWatchOptions
  readonly #timer: NodeJS.Timeout
  /** Loops above the threshold. Bounded by the loops that exist: one that is gone is removed. */
  readonly #lagging = new Set<string>()

  constructor(options: LagWatchOptions) {
    this.#options = options
    this.#timer = setInterval(() => this.look(), lookEveryMs).unref()
  }

  look(): void {
    const { loops, workers } = this.#options
    const seen = new Set<string>()
    for (const [loop, lag] of Object.entries(loops())) {
      seen.add(loop)
      this.#judge(loop, lag.maxMs, { lag })
    }
    for (const { id, state, lag, blockedBy } of workers()) {
      const loop = `worker-${id}`
      seen.add(loop)
      // A silent worker's last figures are from before it fell silent.
      const worstMs = state === 'silent' ? Infinity : lag.maxMs
      this.#judge(loop, worstMs, { worker: id, state, lag, ...(blockedBy !== undefined && { blockedBy }) })
    }
    for (const loop of this.#lagging) if (!seen.has(loop)) this.#lagging.delete(loop)
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer)
  }

  #judge(loop: string, worstMs: number, facts: object): void {
    const { logger, thresholdMs } = this.#options
    const isLagging = worstMs > thresholdMs
    if (isLagging === this.#lagging.has(loop)) return
    if (isLagging) {
      this.#lagging.add(loop)
      logger.lines.warn({ loop, thresholdMs, ...facts }, 'loop lags')
    } else {
      this.#lagging.delete(loop)
      logger.lines.info({ loop, thresholdMs, ...facts }, 'loop keeps up again')
    }
  }
}
