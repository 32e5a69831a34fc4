import type { MillraceError } from '../errors/index.ts'
import { EventChannel } from '../kit/index.ts'
import type { ModelRequest } from './backend.ts'
import type { ModelReply } from './model-reply.ts'

/** One call as listeners see it: the same object from its start to its end. */
export interface ModelCall {
  readonly model: string
  readonly request: ModelRequest
  /** On the clock of `performance.now()`. */
  readonly startedAt: number
  /** A listener that traces the call sets this when the call starts; the backend gets it as a header. */
  traceparent?: string
}

export type ModelCallEvent =
  | { readonly kind: 'start'; readonly call: ModelCall }
  /** A try failed; another one may follow. */
  | { readonly kind: 'try-failed'; readonly model: string; readonly error: MillraceError }
  /** `provider` is that of the backend which was asked last. Usage that the server does not report is estimated. */
  | { readonly kind: 'end'; readonly call: ModelCall; readonly reply: ModelReply; readonly provider: string }

export const modelCalls = new EventChannel<ModelCallEvent>('millrace:model-call')
