import { Worker } from 'node:worker_threads'
import { startVariables, within } from '../../kit/index.ts'
import type { DecodeAnswer, DecodeJob, ToDecodeThread } from './decode-messages.ts'

/** Ending a thread from outside is what is left when it does not end by itself. */
const closeGraceMs = 2_000

/** What a pool does when something comes of one of its threads. */
export interface DecodeWorkerOwner {
  onAnswer(worker: DecodeWorker, answer: DecodeAnswer): void
  /** Called once. `jobs` are those it took with it. */
  onDeath(worker: DecodeWorker, why: Error): void
}

/** One decode thread as the pool sees it. Whoever holds the pool keeps it, and with it the process. */
export class DecodeWorker {
  readonly jobs = new Set<number>()
  /** Whether it ever answered: one that has not may not be able to start at all. */
  hasAnswered = false
  lastUsedAt = performance.now()
  readonly #worker: Worker
  readonly #exited: Promise<void>
  #isEnding = false

  constructor(entry: URL, owner: DecodeWorkerOwner) {
    this.#worker = new Worker(entry, { name: 'millrace-decode', env: startVariables() })
    let why: Error | undefined
    this.#worker.on('message', (answer: DecodeAnswer) => {
      this.hasAnswered = true
      this.jobs.delete(answer.job)
      this.lastUsedAt = performance.now()
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
    this.jobs.add(job.job)
    // Pieces may lie in the same memory.
    const memory = new Set(job.pieces.map(({ buffer }) => buffer))
    this.#worker.postMessage(job, [...memory])
  }

  /** Lets it end by itself if it is idle; what it works on nobody waits for any more. */
  async end(): Promise<void> {
    this.#isEnding = true
    this.#worker.postMessage('close' satisfies ToDecodeThread)
    if (!(await within(this.#exited, this.jobs.size === 0 ? closeGraceMs : 0))) await this.#worker.terminate()
  }
}
