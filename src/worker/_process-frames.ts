import type { WireError } from '../errors/index.ts'
import type { GrantMessage, LeaseMessage, LimitsHandle } from '../inference/index.ts'
import type { FromWorker, ToWorker, WorkerStart } from './worker-messages.ts'

/** A process has one pipe: what a thread is born with, its journal and its limits travel on that, too. */
export type ToProcess =
  | ToWorker
  | { readonly kind: 'start'; readonly id: number; readonly start: WorkerStart; readonly limits: LimitsHandle }
  | { readonly kind: 'limits'; readonly grant: GrantMessage }
  | { readonly kind: 'journal-answer'; readonly failure: WireError | null }
  | { readonly kind: 'journal-closed' }

export type FromProcess =
  | FromWorker
  | { readonly kind: 'limits'; readonly lease: LeaseMessage }
  /** `transfer` names buffers within `batch`, as for a port; one message keeps what is the same the same. */
  | { readonly kind: 'journal'; readonly batch: unknown; readonly transfer: readonly ArrayBuffer[] }
  | { readonly kind: 'journal-close' }
