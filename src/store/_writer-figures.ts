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
  slowestCommitMs: 7,
} as const

/**
 * The writer thread's figures about itself, in memory that both threads see: reading them takes no message, and so does not
 * depend on the thread that is being measured. Each number stands alone; two of them may be from different moments.
 */
export class WriterFigures {
  readonly memory: SharedArrayBuffer
  readonly #cells: Float64Array
  #slowestMs = 0

  constructor(memory = new SharedArrayBuffer(Object.keys(cells).length * Float64Array.BYTES_PER_ELEMENT)) {
    this.memory = memory
    this.#cells = new Float64Array(memory)
  }

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
      slowestCommitMs: this.#read('slowestCommitMs'),
    }
  }

  /** Called by the writer after each transaction. */
  committed(entries: number, ms: number): void {
    this.#write('commits', this.#read('commits') + 1)
    this.#write('entries', this.#read('entries') + entries)
    this.#write('commitMs', this.#read('commitMs') + ms)
    this.#slowestMs = Math.max(this.#slowestMs, ms)
  }

  /** Called by the writer at the end of each window. */
  endWindow(lag: LoopLagWindow): void {
    this.#write('p99Ms', lag.p99Ms)
    this.#write('maxMs', lag.maxMs)
    this.#write('meanMs', lag.meanMs)
    this.#write('utilization', lag.utilization)
    this.#write('slowestCommitMs', this.#slowestMs)
    this.#slowestMs = 0
  }

  #read(cell: keyof typeof cells): number {
    return this.#cells[cells[cell]] ?? 0
  }

  #write(cell: keyof typeof cells, value: number): void {
    this.#cells[cells[cell]] = value
  }
}
