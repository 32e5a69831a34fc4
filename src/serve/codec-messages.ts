import type { WireError } from '../errors/index.ts'
import type { Outcome } from '../schema/index.ts'

/**
 * How a rollout is written. `record`: what it came to, with its messages. `tokens`: with its nodes too, token ids and
 * log-probabilities as JSON numbers. `tokens-base64`: the same with every array as base64, a third of the size.
 */
export const recordForms = ['record', 'tokens', 'tokens-base64'] as const
export type RecordForm = (typeof recordForms)[number]

/** What a codec thread is started with. */
export interface CodecStart {
  readonly folder: string
}

/** What a listing shows of an ended rollout. */
export interface RolloutHead {
  readonly id: string
  readonly task: { readonly index: number; readonly id: string }
  readonly sample: number
  readonly attempt: number
  readonly outcome: Outcome
  readonly reward: number | null
  readonly turns: number
  readonly startedAt: number
  readonly wallMs: number
}

/** A request body, taken apart: what is around the tasks, and each task as JSON text. */
export interface DecodedBody {
  readonly head: unknown
  /** undefined where the body has no tasks. */
  readonly tasks: readonly string[] | undefined
}

/** What is left of it at the end: its tasks went before, some at a time. */
export interface DecodedHead {
  readonly head: unknown
  readonly hasTasks: boolean
}

/** Outputs of a job that the front has not taken; with so many it stands still. */
export const maxUnderWay = 4

export type CodecJob =
  /** Answered by chunks. */
  | { readonly kind: 'encode'; readonly rollout: string; readonly form: RecordForm }
  | { readonly kind: 'heads'; readonly rollouts: readonly string[] }
  /** Answered by lists of tasks. */
  | { readonly kind: 'decode'; readonly body: readonly Uint8Array[] }

export type ToCodec =
  | { readonly kind: 'start'; readonly job: number; readonly work: CodecJob; readonly submittedAt: bigint }
  | { readonly kind: 'credit'; readonly job: number }
  | { readonly kind: 'cancel'; readonly job: number }
  | { readonly kind: 'close' }

export type FromCodec =
  | { readonly kind: 'ready' }
  /** The thread has got round to it, so long after it was asked for. */
  | { readonly kind: 'begin'; readonly job: number; readonly waitedMs: number }
  | { readonly kind: 'output'; readonly job: number; readonly output: CodecOutput }
  | { readonly kind: 'end'; readonly job: number; readonly value: CodecAnswer }
  | { readonly kind: 'failed'; readonly job: number; readonly error: WireError }

/** A chunk of JSON, or some tasks as JSON. */
export type CodecOutput = Uint8Array<ArrayBuffer> | readonly string[]

export type CodecAnswer = undefined | readonly RolloutHead[] | DecodedHead
