import { createHistogram } from 'node:perf_hooks'
import type { LoopLagWindow } from '../../kit/index.ts'

/** How many numbers there are: p99Ms, maxMs, meanMs, utilization, commits, entries, commitMs, in this order. */
const cellCount = 7

/** In memory that both threads see: reading the figures does not depend on the thread that is being measured. */
export class WriterFigures {
  readonly memory: SharedArrayBuffer
  readonly #counters: Float64Array
  /** How long each transaction of this window took, in microseconds. */
  readonly #commitTimes = createHistogram()

  constructor(memory = new SharedArrayBuffer(cellCount * Float64Array.BYTES_PER_ELEMENT)) {
    this.memory = memory
    this.#counters = new Float64Array(memory)
  }

  /** From its commits: a monitor of the loop would wake up an idle thread fifty times a second. */
  lag(): LoopLagWindow {
    const [p99Ms = 0, maxMs = 0, meanMs = 0, utilization = 0] = this.#counters
    return { p99Ms, maxMs, meanMs, utilization }
  }

  status(): StoreStatus {
    const [, slowestCommitMs = 0, , , commits = 0, entries = 0, commitMs = 0] = this.#counters
    return { commits, entries, commitMs, slowestCommitMs }
  }

  committed(entries: number, ms: number): void {
    const before = this.status()
    this.#counters.set([before.commits + 1, before.entries + entries, before.commitMs + ms], 4)
    this.#commitTimes.record(Math.max(1, Math.round(ms * 1000)))
  }

  /** Called by the writer at the end of each window, with the share of it that its loop was busy. */
  endWindow(utilization: number): void {
    const times = this.#commitTimes
    const mean = times.count === 0 ? 0 : times.mean
    this.#counters.set([times.percentile(99) / 1000, times.max / 1000, mean / 1000, utilization])
    times.reset()
  }
}

/** What the writer of a run has done since the run was opened. */
export interface StoreStatus {
  /** Transactions, the entries in them, and how long they took in all, syncing to disk included. */
  readonly commits: number
  readonly entries: number
  readonly commitMs: number
  /** The slowest transaction of the last second or two; 0 if there was none. */
  readonly slowestCommitMs: number
}
