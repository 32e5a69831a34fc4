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
  readonly #timer: NodeJS.Timeout
  #lastCpuMs = threadCpuMs()
  #maxTurnCpuMs = 0

  constructor() {
    this.#delay.enable()
    this.#timer = setInterval(() => {
      const cpuMs = threadCpuMs()
      this.#maxTurnCpuMs = Math.max(this.#maxTurnCpuMs, cpuMs - this.#lastCpuMs)
      this.#lastCpuMs = cpuMs
    }, tickMs)
  }

  stop(): LoopFigures {
    clearInterval(this.#timer)
    this.#delay.disable()
    return {
      maxTurnCpuMs: this.#maxTurnCpuMs,
      // What the monitor counts is the interval between its own ticks; what is over a tick is lag.
      lagP99Ms: Math.max(0, this.#delay.percentile(99) / 1e6 - tickMs),
      lagMaxMs: Math.max(0, this.#delay.max / 1e6 - tickMs),
    }
  }
}

function threadCpuMs(): number {
  const { user, system } = process.threadCpuUsage()
  return (user + system) / 1000
}
