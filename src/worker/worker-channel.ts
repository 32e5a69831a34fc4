import type { MessagePort } from 'node:worker_threads'
import type { GrantMessage, LimitLease, LimitsHandle } from '../inference/index.ts'
import type { BlockedTarget } from './blocked-function.ts'
import type { FromWorker, ToWorker, WorkerStart } from './worker-messages.ts'

/** How much JavaScript heap a worker may have; V8's own choice where nothing is said. */
export interface WorkerHeap {
  /** A worker that needs more than this dies, alone. */
  readonly maxOldGenerationMb?: number
  /** A smaller young generation is collected more often and for less long. */
  readonly maxYoungGenerationMb?: number
}

/** A worker's place among those who share the models' limits. */
export interface LimitsPlace {
  /** For a thread. */
  handle(): LimitsHandle
  /** For a process. */
  lease(send: (grant: GrantMessage) => void): Pick<LimitLease, 'handle' | 'receive'>
}

export interface ChannelOptions {
  readonly id: number
  readonly start: WorkerStart
  readonly heap: WorkerHeap
  /** A port to the journal's writer that is this worker's alone. */
  readonly journal: MessagePort
  readonly limits: LimitsPlace
  readonly onMessage: (message: FromWorker) => void
}

/** A worker as its supervisor holds it: the one difference between a thread and a process, seen from outside. */
export interface WorkerChannel {
  readonly kind: 'thread' | 'process'
  /** For whoever looks at it while it is blocked. */
  readonly target: BlockedTarget
  /** Resolves once it is gone and everything it said was heard, to how it ended. Never rejects. */
  readonly exited: Promise<string>
  /** A worker that is gone is told nothing. Throws if something in the message cannot be cloned. */
  post(message: ToWorker): void
  /** At once, whatever it is doing. From now on nothing it says is heard, nor written for it. */
  kill(): void
}

export type OpenChannel = (options: ChannelOptions) => WorkerChannel
