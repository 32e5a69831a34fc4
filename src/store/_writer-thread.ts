/** The entry of the thread that writes a run. No other thread writes to the database and `rollouts.jsonl`. */
import { type MessagePort, parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads'
import { MillraceError, type WireError } from '../errors/index.ts'
import { type Batch, decodeBatch } from './_batch-codec.ts'
import { BatchCommits } from './_batch-commits.ts'
import { presenceCheckMs } from './run-presence.ts'
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
const figures = new WriterFigures(options.figures)
const ports = new Set<MessagePort>()
let commits: BatchCommits | undefined

let windowStart = performance.eventLoopUtilization()
setInterval(() => {
  const now = performance.eventLoopUtilization()
  figures.endWindow(performance.eventLoopUtilization(now, windowStart).utilization)
  windowStart = now
  const failure = commits?.failureNow()
  if (failure) tellFailure(failure)
  // Longer than the time between two looks of whoever watches for lag, so that no window is missed.
}, presenceCheckMs).unref()

try {
  commits = BatchCommits.open(options.folder, figures)
  control.on('message', onCommand)
  notify({ kind: 'ready', lastFrame: commits.lastFrame })
} catch (error) {
  // Without a listener on the control port nothing keeps this thread alive.
  notify({ kind: 'failed', error: MillraceError.from(error, 'store_failed').toWire() })
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
  const arrived = first ? [first] : []
  const failure = commits?.commit(() => {
    for (const port of ports) {
      const waiting = receiveMessageOnPort(port)
      if (waiting) arrived.push({ port, batch: waiting.message as Batch })
    }
    return arrived.map(({ batch }) => decodeBatch(batch))
  })
  if (failure) tellFailure(failure)
  else for (const { port } of arrived) port.postMessage(null)
}

function retryFailed(failed: RetryFailed): void {
  const count = commits?.retryFailed(failed)
  if (typeof count === 'number') notify({ kind: 'retried', count })
  else if (count) tellFailure(count)
}

function tellFailure(failure: WireError): void {
  for (const port of ports) port.postMessage(failure)
  notify({ kind: 'failed', error: failure })
}

function close(): void {
  commitWaiting()
  commits?.close()
  for (const port of ports) port.close()
  control.close()
}

function notify(notice: WriterNotice): void {
  control.postMessage(notice)
}
