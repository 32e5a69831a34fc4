import { Worker } from 'node:worker_threads'
import { startVariables, within } from '../../kit/index.ts'
import type { DecodeAnswer, DecodeJob, ToDecodeThread } from './decode-messages.ts'

/** How long a thread may take to end by itself before it is terminated. */
const closeGraceMs = 2_000

/** The pool's reactions to its threads. */
export interface DecodeWorkerOwner {
  onAnswer(worker: DecodeWorker, answer: DecodeAnswer): void
  /** Called once when a thread has died. `worker.jobs` are the jobs that died with it. */
  onDeath(worker: DecodeWorker, why: Error): void
}

/** One decode thread as the pool sees it. It keeps the process alive until the pool ends it. */
export class DecodeWorker {
  readonly jobs = new Set<number>()
  /** Whether the thread ever answered. If not, it may not be able to start at all. */
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
    // Several pieces may lie in the same memory, which can be transferred only once.
    const memory = new Set(job.pieces.map(({ buffer }) => buffer))
    this.#worker.postMessage(job, [...memory])
  }

  /** Ends the thread: by itself if it is idle, at once if it has jobs, because nobody waits for these any more. */
  async end(): Promise<void> {
    this.#isEnding = true
    this.#worker.postMessage('close' satisfies ToDecodeThread)
    if (!(await within(this.#exited, this.jobs.size === 0 ? closeGraceMs : 0))) await this.#worker.terminate()
  }
}
