import type { MessagePort } from 'node:worker_threads'
import type { WireError } from '../errors/index.ts'
import type { Outcome } from '../schema/index.ts'

/** What the writer thread is started with. */
export interface WriterOptions {
  readonly folder: string
  /** The memory of the `WriterFigures`. */
  readonly figures: SharedArrayBuffer
}

/** Which accepted results to take back. */
export interface RetryFailed {
  readonly outcomes: readonly Outcome[]
  /** The outcomes among `outcomes` whose attempt is still good: it goes on from its journal instead of starting over. */
  readonly reopened: readonly Outcome[]
  /** Rollouts of one task are scored together, so the results of a rollout's siblings are taken back with its own. */
  readonly wholeGroups: boolean
}

/** Messages to the writer thread from the thread that started it. Batches travel on ports of their own. */
export type WriterCommand =
  | { readonly kind: 'connect'; readonly port: MessagePort }
  | ({ readonly kind: 'retry-failed' } & RetryFailed)
  | { readonly kind: 'close' }

/** Messages from the writer thread. `failed` may come at any time, and is the last that matters. */
export type WriterNotice =
  | { readonly kind: 'ready'; readonly lastFrame: number }
  | { readonly kind: 'failed'; readonly error: WireError }
  | { readonly kind: 'retried'; readonly count: number }
