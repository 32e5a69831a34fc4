/** The entry of the thread that writes a run. No other thread writes to the database and `rollouts.jsonl`. */
import { type MessagePort, parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads'
import { MillraceError, type WireError } from '../errors/index.ts'
import { LoopLag } from '../kit/index.ts'
import { type Batch, decodeBatch } from './_batch-codec.ts'
import { JournalWriter } from './_journal-writer.ts'
import { storeFailure } from './_store-failure.ts'
import { WriterFigures } from './_writer-figures.ts'
import type { RetryFailed, WriterCommand, WriterNotice, WriterOptions } from './_writer-protocol.ts'

/** A batch, and the port to answer on when it is committed. */
interface Arrival {
  readonly port: MessagePort
  readonly batch: Batch
}

if (!parentPort) throw new MillraceError('internal', 'the store writer must be started as a thread')
const control: MessagePort = parentPort
const options = workerData as WriterOptions
const { folder } = options
const figures = new WriterFigures(options.figures)
const ports = new Set<MessagePort>()
let writer: JournalWriter | undefined
let failure: WireError | undefined

const lagWindowMs = 500
const lag = new LoopLag(lagWindowMs)
setInterval(() => figures.endWindow(lag.snapshot()), lagWindowMs).unref()

try {
  writer = JournalWriter.open(folder)
  control.on('message', onCommand)
  notify({ kind: 'ready', lastFrame: writer.lastFrame })
} catch (error) {
  // Without a listener on the control port nothing keeps this thread alive.
  notify({ kind: 'failed', error: storeFailure(error, folder).toWire() })
}

function onCommand(command: WriterCommand): void {
  switch (command.kind) {
    case 'connect': {
      const { port } = command
      ports.add(port)
      port.on('message', (batch: Batch) => commitWaiting({ port, batch }))
      port.on('close', () => ports.delete(port))
      return
    }
    case 'retry-failed':
      retryFailed(command)
      return
    case 'close':
      close()
      return
  }
}

/** Commits this batch and all that came meanwhile in one transaction. Bounded, as each client has one batch under way. */
function commitWaiting(first?: Arrival): void {
  if (failure || !writer) {
    first?.port.postMessage(failure)
    return
  }
  const startedAt = performance.now()
  const arrived = first ? [first] : []
  try {
    writer.begin()
    for (const port of ports) {
      const waiting = receiveMessageOnPort(port)
      if (waiting) arrived.push({ port, batch: waiting.message as Batch })
    }
    let entries = 0
    for (const { batch } of arrived) for (const entry of decodeBatch(batch)) entries += writer.take(entry)
    writer.commit()
    figures.committed(entries, performance.now() - startedAt)
  } catch (error) {
    fail(error)
    return
  }
  for (const { port } of arrived) port.postMessage(null)
}

function fail(error: unknown): void {
  writer?.rollback()
  failure = storeFailure(error, folder).toWire()
  for (const port of ports) port.postMessage(failure)
  notify({ kind: 'failed', error: failure })
}

function retryFailed(failed: RetryFailed): void {
  if (failure || !writer) return
  try {
    notify({ kind: 'retried', count: writer.retryFailed(failed, Date.now()) })
  } catch (error) {
    fail(error)
  }
}

function close(): void {
  commitWaiting()
  writer?.close()
  for (const port of ports) port.close()
  control.close()
}

function notify(notice: WriterNotice): void {
  control.postMessage(notice)
}
