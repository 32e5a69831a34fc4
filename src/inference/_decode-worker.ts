import { Worker } from 'node:worker_threads'
import type { DecodeAnswer, DecodeJob } from './_decode-messages.ts'

/** What a pool does when something comes of one of its threads. */
export interface DecodeWorkerOwner {
  onAnswer(worker: DecodeWorker, answer: DecodeAnswer): void
  /** Called once. `jobs` are those it took with it. */
  onDeath(worker: DecodeWorker, why: Error): void
}

/** One decode thread as the pool sees it. While it has nothing to do it does not keep the process alive. */
export class DecodeWorker {
  readonly jobs = new Set<number>()
  /** Whether it ever answered: one that has not may not be able to start at all. */
  hasAnswered = false
  lastUsedAt = performance.now()
  readonly #worker: Worker
  readonly #exited: Promise<void>
  #isEnding = false

  constructor(entry: URL, owner: DecodeWorkerOwner) {
    this.#worker = new Worker(entry, { name: 'millrace-decode' })
    this.#worker.unref()
    let why: Error | undefined
    this.#worker.on('message', (answer: DecodeAnswer) => {
      this.hasAnswered = true
      this.jobs.delete(answer.job)
      this.lastUsedAt = performance.now()
      if (this.jobs.size === 0) this.#worker.unref()
      owner.onAnswer(this, answer)
    })
    this.#worker.on('error', (error) => (why = error))
    this.#exited = new Promise((resolve) => {
      this.#worker.once('exit', (code) => {
        resolve()
        if (!this.#isEnding) owner.onDeath(this, why ?? new Error(`it exited with code ${code}`))
      })
    })
  }

  send(job: DecodeJob): void {
    if (this.jobs.size === 0) this.#worker.ref()
    this.jobs.add(job.job)
    // Pieces may lie in the same memory.
    const memory = new Set(job.pieces.map(({ buffer }) => buffer))
    this.#worker.postMessage(job, [...memory])
  }

  /** Ends it whatever it does. */
  async end(): Promise<void> {
    this.#isEnding = true
    await this.#worker.terminate()
    await this.#exited
  }
}
