/** The entry of the thread that writes a run. No other thread writes to the database and `rollouts.jsonl`. */
import { type MessagePort, parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads'
import { MillraceError, type WireError } from '../../errors/index.ts'
import { storeFailure } from '../run/failures.ts'
import { presenceCheckMs, RunPresence } from '../run/run-presence.ts'
import type { JournalEntry } from './journal.ts'
import { JournalWriter } from './journal-writer.ts'
import type { RetryFailed, WriterCommand, WriterNotice, WriterOptions } from './store-writer.ts'
import { WriterFigures } from './writer-figures.ts'

interface Arrival {
  readonly port: MessagePort
  readonly batch: readonly JournalEntry[]
}

/** Commits batches of entries as they arrive. After the first failure nothing more is written. */
class BatchCommits {
  readonly #writer: JournalWriter
  readonly #presence: RunPresence
  readonly #ports = new Set<MessagePort>()
  /** The rollouts that somebody follows: few, one for each client that streams. */
  readonly #watched = new Set<string>()
  #failure: WireError | undefined

  constructor(writer: JournalWriter, presence: RunPresence) {
    this.#writer = writer
    this.#presence = presence
  }

  readonly onCommand = (command: WriterCommand): void => {
    switch (command.kind) {
      case 'connect': {
        const { port } = command
        this.#ports.add(port)
        port.on('message', (batch: readonly JournalEntry[]) => this.#commitWaiting({ port, batch }))
        port.on('close', () => this.#ports.delete(port))
        return
      }
      case 'retry-failed':
        this.#retryFailed(command)
        return
      case 'watch':
        this.#watched.add(command.rollout)
        return
      case 'unwatch':
        this.#watched.delete(command.rollout)
        return
      case 'close':
        this.#close()
        return
    }
  }

  checkPresence(): void {
    if (this.#failure) return
    const absence = this.#presence.absence()
    if (absence) this.#fail(absence)
  }

  /** Commits this batch and all that came meanwhile in one transaction. Bounded, as each client has one batch under way. */
  #commitWaiting(first?: Arrival): void {
    if (this.#refuses()) return
    const startedAt = performance.now()
    const arrived = first ? [first] : []
    let entries = 0
    try {
      this.#writer.begin()
      // Taken once the transaction has begun, because that may have to wait for others who use the database.
      for (const port of this.#ports) {
        const waiting = receiveMessageOnPort(port)
        if (waiting) arrived.push({ port, batch: waiting.message as readonly JournalEntry[] })
      }
      for (const { batch } of arrived) {
        for (const entry of batch) this.#writer.apply(entry)
        entries += batch.length
      }
      this.#writer.commit()
    } catch (error) {
      this.#fail(error)
      return
    }
    figures.committed(entries, performance.now() - startedAt)
    for (const { port } of arrived) port.postMessage(null)
    if (this.#watched.size > 0) this.#tellWatchers(arrived)
  }

  #tellWatchers(arrived: readonly Arrival[]): void {
    const attempts = new Map<string, number>()
    for (const { batch } of arrived) {
      for (const entry of batch) {
        if (entry.kind === 'node' && this.#watched.has(entry.rollout)) attempts.set(entry.rollout, entry.attempt)
      }
    }
    if (attempts.size > 0) notify({ kind: 'recorded', attempts: [...attempts] })
  }

  #retryFailed(failed: RetryFailed): void {
    if (this.#refuses()) return
    try {
      notify({ kind: 'retried', count: this.#writer.retryFailed(failed, Date.now()) })
    } catch (error) {
      this.#fail(error)
    }
  }

  /** Whether nothing more can be written. Then everybody is told again: somebody may have come since. */
  #refuses(): boolean {
    this.checkPresence()
    if (this.#failure) this.#tell(this.#failure)
    return this.#failure !== undefined
  }

  #fail(error: unknown): void {
    this.#writer.rollback()
    this.#failure = storeFailure(error, folder).toWire()
    this.#tell(this.#failure)
  }

  #tell(failure: WireError): void {
    for (const port of this.#ports) port.postMessage(failure)
    notify({ kind: 'failed', error: failure })
  }

  #close(): void {
    this.#commitWaiting()
    if (!this.#presence.absence()) this.#writer.catchUpLines()
    this.#writer.close()
    this.#presence[Symbol.dispose]()
    for (const port of this.#ports) port.close()
    control.close()
  }
}

if (!parentPort) throw new MillraceError('internal', 'the store writer must be started as a thread')
const control: MessagePort = parentPort
const { folder, figures: memory } = workerData as WriterOptions
const figures = new WriterFigures(memory)

try {
  using opened = new DisposableStack()
  const writer = opened.adopt(JournalWriter.open(folder), (each) => each.close())
  const commits = new BatchCommits(writer, new RunPresence(folder))
  // From here on they are closed by command.
  opened.move()
  let windowStart = performance.eventLoopUtilization()
  setInterval(() => {
    const now = performance.eventLoopUtilization()
    figures.endWindow(performance.eventLoopUtilization(now, windowStart).utilization)
    windowStart = now
    commits.checkPresence()
    // Longer than the time between two looks of whoever watches for lag, so that no window is missed.
  }, presenceCheckMs).unref()
  control.on('message', commits.onCommand)
  notify({ kind: 'ready' })
} catch (error) {
  // Without a listener on the control port nothing keeps this thread alive.
  notify({ kind: 'failed', error: storeFailure(error, folder).toWire() })
}

function notify(notice: WriterNotice): void {
  control.postMessage(notice)
}
