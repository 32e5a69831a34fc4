import type { MessagePort } from 'node:worker_threads'
import type { WireError } from '../errors/index.ts'
import type { Outcome } from '../schema/index.ts'

/** What the writer thread is started with. */
export interface WriterOptions {
  readonly folder: string
}

/** To the writer thread, from the one who started it. Batches travel on ports of their own. */
export type WriterCommand =
  | { readonly kind: 'connect'; readonly port: MessagePort }
  | { readonly kind: 'retry-failed'; readonly outcomes: readonly Outcome[] }
  | { readonly kind: 'close' }

/** From the writer thread. `failed` may come at any time, and is the last that matters. */
export type WriterNotice =
  | { readonly kind: 'ready' }
  | { readonly kind: 'failed'; readonly error: WireError }
  | { readonly kind: 'retried'; readonly count: number }
