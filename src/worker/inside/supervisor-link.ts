import { EventEmitter, once } from 'node:events'
import { type MessagePort, parentPort, Worker, workerData } from 'node:worker_threads'
import { MillraceError } from '../../errors/index.ts'
import { settleHeapForRollouts } from '../../kit/index.ts'
import type { JournalEntry, JournalPort } from '../../store/index.ts'
import type {
  FromProcess,
  FromThread,
  FromWorker,
  ToProcess,
  ToThread,
  ToWorker,
  WorkerStart,
} from '../channel/channel.ts'
import { WorkerLimits, type LimitsHandle } from '../../inference/index.ts'

/** A worker's link to its supervisor: the one difference between a thread and a process, seen from inside. */
export interface SupervisorLink {
  readonly id: number
  readonly start: WorkerStart
  readonly journal: JournalPort
  readonly limits: WorkerLimits
  /** Throws if something in the message cannot leave the worker. */
  send(message: FromWorker): void
  onMessage(listener: (message: ToWorker) => void): void
  memoryBytes(): number
}

export interface ThreadData {
  readonly id: number
  readonly start: WorkerStart
  /** A port straight to the journal's writer, without the supervising thread in between. */
  readonly journal: MessagePort
  readonly limits: LimitsHandle
}

export function threadLink(): SupervisorLink {
  const port = parentPort
  if (!port) throw new MillraceError('internal', 'this file must be started as a worker')
  const { id, start, journal, limits: handle } = workerData as ThreadData
  const send = (message: FromThread): void => port.postMessage(message)
  const limits = new WorkerLimits(handle, (lease) => send({ kind: 'limits', lease }))
  return {
    id,
    start,
    journal,
    limits,
    send,
    onMessage: (listener) => {
      port.on('message', (message: ToThread) => {
        if (message.kind === 'limits') limits.receive(message.grant)
        else listener(message)
      })
    },
    memoryBytes: () => {
      // The memory of this thread alone: `rss` would be that of the whole process.
      const { heapTotal, external } = process.memoryUsage()
      return heapTotal + external
    },
  }
}

/** Signals that a terminal or a service manager sends to the whole group. Workers ignore them: the supervisor ends workers. */
const groupSignals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

export async function processLink(): Promise<SupervisorLink> {
  for (const signal of groupSignals) process.on(signal, () => {})
  // Without its supervisor a worker is of no use, and nothing else would end it.
  process.once('disconnect', () => process.exit())
  // V8 flags may be set here, because this process runs nothing but rollouts.
  settleHeapForRollouts()
  endWithSupervisor()
  const [first] = (await once(process, 'message')) as [ToProcess]
  if (first.kind !== 'start')
    throw new MillraceError('internal', `the first message to a worker process was ${first.kind}`)
  const journal = new PipedJournalPort()
  const limits = new WorkerLimits(first.limits, (lease) => tell({ kind: 'limits', lease }))
  return {
    id: first.id,
    start: first.start,
    journal,
    limits,
    send: tell,
    onMessage: (listener) => {
      process.on('message', (message: ToProcess) => {
        if (message.kind === 'journal-answer') journal.emit('message', message.failure)
        else if (message.kind === 'journal-closed') journal.emit('close')
        else if (message.kind === 'limits') limits.receive(message.grant)
        else if (message.kind !== 'start') listener(message)
      })
    },
    memoryBytes: () => process.memoryUsage.rss(),
  }
}

/** The descriptor of a pipe that closes when the supervisor is gone: after the standard streams and the channel of `fork`. */
const supervisorPipe = 4

/** Ends this process when its supervisor was killed. On a thread of its own, because a blocked main thread would not notice. */
function endWithSupervisor(): void {
  const program = `
    const pipe = new (require('node:net').Socket)({ fd: ${supervisorPipe} })
    pipe.on('error', () => pipe.destroy()).on('close', () => process.kill(process.pid, 'SIGKILL')).resume()`
  const resourceLimits = { maxOldGenerationSizeMb: 16, maxYoungGenerationSizeMb: 2 }
  new Worker(program, { eval: true, name: 'millrace-supervisor-watch', resourceLimits }).unref()
}

/** The journal of a worker process: its batches go through the supervisor. */
class PipedJournalPort extends EventEmitter implements JournalPort {
  postMessage(entries: readonly JournalEntry[]): void {
    tell({ kind: 'journal', entries })
  }

  close(): void {
    tell({ kind: 'journal-close' })
  }
}

function tell(message: FromProcess): void {
  // If the supervisor is gone, the message is lost; `disconnect` then ends this process.
  process.send?.(message, undefined, undefined, () => {})
}
