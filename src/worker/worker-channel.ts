import type { MessagePort } from 'node:worker_threads'
import type { GrantMessage, LimitLease, LimitsHandle } from '../inference/index.ts'
import type { BlockedTarget } from './blocked-function.ts'
import type { FromWorker, ToWorker, WorkerStart } from './worker-messages.ts'

/** How much JavaScript heap a worker may have; V8's own choice if not given. */
export interface WorkerHeap {
  /** A worker that needs more than this dies, alone. */
  readonly maxOldGenerationMb?: number
  /** A smaller young generation is collected more often and for less long. */
  readonly maxYoungGenerationMb?: number
}

/** A worker's place in the shared limits of the models. */
export interface LimitsPlace {
  /** The handle for a thread. */
  handle(): LimitsHandle
  /** The lease for a process. */
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
  /** What to look into while the worker is blocked. */
  readonly target: BlockedTarget
  /** Resolves to how the worker ended, once it is gone and everything it said was heard. Never rejects. */
  readonly exited: Promise<string>
  /** Sends a message; ignored if the worker is gone. Throws if something in the message cannot be cloned. */
  post(message: ToWorker): void
  /** Ends the worker at once, whatever it is doing. From now on nothing it says is heard, or written for it. */
  kill(): void
}

export type OpenChannel = (options: ChannelOptions) => WorkerChannel
