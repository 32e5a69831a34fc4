import { Thread } from '../../kit/index.ts'
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
  readonly #thread: Thread<ToDecodeThread>
  #isEnding = false

  constructor(entry: URL, owner: DecodeWorkerOwner) {
    this.#thread = new Thread(entry, { name: 'millrace-decode' })
    this.#thread.on('message', (answer: DecodeAnswer) => {
      this.hasAnswered = true
      this.jobs.delete(answer.job)
      this.lastUsedAt = performance.now()
      owner.onAnswer(this, answer)
    })
    void this.#thread.ended.then((why) => {
      if (!this.#isEnding) owner.onDeath(this, why)
    })
  }

  send(job: DecodeJob): void {
    this.jobs.add(job.job)
    // Several pieces may lie in the same memory, which can be transferred only once.
    const memory = new Set(job.pieces.map(({ buffer }) => buffer))
    this.#thread.postMessage(job, [...memory])
  }

  /** Ends the thread: by itself if it is idle, at once if it has jobs, because nobody waits for these any more. */
  end(): Promise<void> {
    this.#isEnding = true
    return this.#thread.end('close', this.jobs.size === 0 ? closeGraceMs : 0)
  }
}
