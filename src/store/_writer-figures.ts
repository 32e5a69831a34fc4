import { createHistogram } from 'node:perf_hooks'
import type { LoopLagWindow } from '../kit/index.ts'
import type { StoreStatus } from './store-status.ts'

const cells = {
  p99Ms: 0,
  maxMs: 1,
  meanMs: 2,
  utilization: 3,
  commits: 4,
  entries: 5,
  commitMs: 6,
} as const

/**
 * The writer thread's figures about itself, in memory that both threads see: reading them takes no message, and so does not
 * depend on the thread that is being measured. Each number stands alone; two of them may be from different moments.
 */
export class WriterFigures {
  readonly memory: SharedArrayBuffer
  readonly #cells: Float64Array
  /** How long each transaction of this window took, in microseconds. */
  readonly #commitTimes = createHistogram()

  constructor(memory = new SharedArrayBuffer(Object.keys(cells).length * Float64Array.BYTES_PER_ELEMENT)) {
    this.memory = memory
    this.#cells = new Float64Array(memory)
  }

  /**
   * How late the thread is, from its commits: it does nothing else, and what comes during one waits for its end. A monitor of the
   * loop would say the same, but wake up an idle thread fifty times a second for it.
   */
  lag(): LoopLagWindow {
    return {
      p99Ms: this.#read('p99Ms'),
      maxMs: this.#read('maxMs'),
      meanMs: this.#read('meanMs'),
      utilization: this.#read('utilization'),
    }
  }

  status(): StoreStatus {
    return {
      commits: this.#read('commits'),
      entries: this.#read('entries'),
      commitMs: this.#read('commitMs'),
      slowestCommitMs: this.#read('maxMs'),
    }
  }

  /** Called by the writer after each transaction. */
  committed(entries: number, ms: number): void {
    this.#write('commits', this.#read('commits') + 1)
    this.#write('entries', this.#read('entries') + entries)
    this.#write('commitMs', this.#read('commitMs') + ms)
    this.#commitTimes.record(Math.max(1, Math.round(ms * 1000)))
  }

  /** Called by the writer at the end of each window, with the share of it that its loop was busy. */
  endWindow(utilization: number): void {
    const times = this.#commitTimes
    this.#write('p99Ms', times.percentile(99) / 1000)
    this.#write('maxMs', times.max / 1000)
    this.#write('meanMs', times.count === 0 ? 0 : times.mean / 1000)
    this.#write('utilization', utilization)
    times.reset()
  }

  #read(cell: keyof typeof cells): number {
    return this.#cells[cells[cell]] ?? 0
  }

  #write(cell: keyof typeof cells, value: number): void {
    this.#cells[cells[cell]] = value
  }
}
