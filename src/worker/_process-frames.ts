import type { WireError } from '../errors/index.ts'
import type { GrantMessage, LeaseMessage, LimitsHandle } from '../inference/index.ts'
import type { FromWorker, ToWorker, WorkerStart } from './worker-messages.ts'

/** A process has one pipe. It carries its start data, journal and limits, too, which a thread gets by other ways. */
export type ToProcess =
  | ToWorker
  | { readonly kind: 'start'; readonly id: number; readonly start: WorkerStart; readonly limits: LimitsHandle }
  | { readonly kind: 'limits'; readonly grant: GrantMessage }
  | { readonly kind: 'journal-answer'; readonly failure: WireError | null }
  | { readonly kind: 'journal-closed' }

export type FromProcess =
  | FromWorker
  | { readonly kind: 'limits'; readonly lease: LeaseMessage }
  /** `transfer` names buffers within `batch`, as for a port. Both are in one message, so that the buffers stay the same ones. */
  | { readonly kind: 'journal'; readonly batch: unknown; readonly transfer: readonly ArrayBuffer[] }
  | { readonly kind: 'journal-close' }
