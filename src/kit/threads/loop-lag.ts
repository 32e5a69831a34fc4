import { type EventLoopUtilization, monitorEventLoopDelay, performance } from 'node:perf_hooks'

export interface LoopLagWindow {
  /** How much later than asked for a timer fired: the time a ready socket or promise had to wait. */
  readonly p99Ms: number
  readonly maxMs: number
  readonly meanMs: number
  /** The share of time, 0 to 1, the loop spent running code rather than waiting. */
  readonly utilization: number
}

type Monitor = ReturnType<typeof monitorEventLoopDelay>

/** The time between two ticks, each of which wakes the thread, also an idle one. */
const resolutionMs = 20

/**
 * Measures how late this thread's event loop runs. Two native monitors take turns, because one that was just reset misses the
 * interval of the reset. The figures cover the last two windows.
 */
export class LoopLag implements Disposable {
  readonly #minWindowMs: number
  readonly #monitors: [Monitor, Monitor]
  #turn: 0 | 1 = 0
  #windowStart = performance.now()
  #utilization: EventLoopUtilization = performance.eventLoopUtilization()
  #last: LoopLagWindow | undefined
  #worstMs = 0

  constructor(minWindowMs = 1000) {
    this.#minWindowMs = minWindowMs
    this.#monitors = [
      monitorEventLoopDelay({ resolution: resolutionMs }),
      monitorEventLoopDelay({ resolution: resolutionMs }),
    ]
    for (const monitor of this.#monitors) monitor.enable()
  }

  get worstMs(): number {
    return this.#worstMs
  }

  /** The current figures. Within one window every caller gets the same ones, so this may be called for every drawing. */
  snapshot(): LoopLagWindow {
    const now = performance.now()
    const isDue = now - this.#windowStart >= this.#minWindowMs
    if (!isDue && this.#last) return this.#last
    const monitor = this.#monitors[this.#turn]
    const utilization = performance.eventLoopUtilization()
    const window: LoopLagWindow = {
      p99Ms: lateMs(monitor.percentile(99)),
      maxMs: lateMs(monitor.max),
      meanMs: monitor.count === 0 ? 0 : lateMs(monitor.mean),
      utilization: performance.eventLoopUtilization(utilization, this.#utilization).utilization,
    }
    this.#worstMs = Math.max(this.#worstMs, window.maxMs)
    if (!isDue) return window
    monitor.reset()
    this.#turn = this.#turn === 0 ? 1 : 0
    this.#windowStart = now
    this.#utilization = utilization
    this.#last = window
    return window
  }

  [Symbol.dispose](): void {
    for (const monitor of this.#monitors) monitor.disable()
  }
}

/** A monitor records the intervals between its own ticks, in nanoseconds: what exceeds the resolution is the lag. */
function lateMs(intervalNs: number): number {
  return Math.max(0, intervalNs / 1e6 - resolutionMs)
}

const kept = 512

/** The last few hundred waits: they show what is slow now rather than an hour ago. */
export class RecentWaits {
  readonly #waitsMs = new Float64Array(kept)
  #count = 0

  add(ms: number): void {
    this.#waitsMs[this.#count % kept] = ms
    this.#count += 1
  }

  get p99Ms(): number {
    const waits = this.#known.toSorted()
    return waits[Math.ceil(waits.length * 0.99) - 1] ?? 0
  }

  get maxMs(): number {
    return this.#known.reduce((worst, each) => Math.max(worst, each), 0)
  }

  get #known(): Float64Array {
    return this.#waitsMs.subarray(0, Math.min(this.#count, kept))
  }
}
