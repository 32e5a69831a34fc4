import { monitorEventLoopDelay } from 'node:perf_hooks'

export interface LoopFigures {
  /** The most CPU this thread used between two ticks of a 5 ms timer: no turn of the loop took more than this. */
  readonly maxTurnCpuMs: number
  readonly lagP99Ms: number
  readonly lagMaxMs: number
}

const tickMs = 5

/** Watches this thread's loop while something runs on it. */
export class LoopWatch {
  readonly #delay = monitorEventLoopDelay({ resolution: tickMs })
  readonly #turns = new TurnWatch(tickMs)

  constructor() {
    this.#delay.enable()
  }

  stop(): LoopFigures {
    this.#delay.disable()
    return {
      maxTurnCpuMs: this.#turns.stop(),
      // What the monitor counts is the interval between its own ticks; what is over a tick is lag.
      lagP99Ms: Math.max(0, this.#delay.percentile(99) / 1e6 - tickMs),
      lagMaxMs: Math.max(0, this.#delay.max / 1e6 - tickMs),
    }
  }
}

/**
 * The most CPU this thread used between two ticks: no turn of its loop took more. Ticks of 5 ms would add up many short turns of
 * a reply that goes out in hundreds of writes; ticks of 1 ms cost more.
 */
export class TurnWatch {
  readonly #timer: NodeJS.Timeout
  #lastCpuMs = threadCpuMs()
  #maxCpuMs = 0

  constructor(everyMs: number) {
    this.#timer = setInterval(() => {
      const cpuMs = threadCpuMs()
      this.#maxCpuMs = Math.max(this.#maxCpuMs, cpuMs - this.#lastCpuMs)
      this.#lastCpuMs = cpuMs
    }, everyMs)
  }

  /** In milliseconds; the watch is over. */
  stop(): number {
    clearInterval(this.#timer)
    return this.#maxCpuMs
  }
}

function threadCpuMs(): number {
  const { user, system } = process.threadCpuUsage()
  return (user + system) / 1000
}
