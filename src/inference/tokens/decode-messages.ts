import type { WireError } from '../../errors/index.ts'
import type { ScannedReply } from './token-scanner.ts'

/** To a decode thread: a reply in the pieces it came in. Their memory is transferred. */
export interface DecodeJob {
  readonly job: number
  readonly pieces: readonly Uint8Array<ArrayBuffer>[]
}

export type ToDecodeThread = DecodeJob | 'close'

/** A reply that was decoded. */
export interface DecodedReply {
  readonly scanned: ScannedReply
  /** The text that the ids of the prompt were read from, if it is most of the reply. */
  readonly promptText?: Uint8Array<ArrayBuffer>
}

/** The thread's answer. The memory of its arrays is transferred too. */
export type DecodeAnswer = DecodedAnswer | UndecodedReply

interface DecodedAnswer extends DecodedReply {
  readonly kind: 'decoded'
  readonly job: number
  readonly workMs: number
}

/** A reply that the thread could not decode. The thread lives on, for other replies. */
interface UndecodedReply {
  readonly kind: 'failed'
  readonly job: number
  readonly error: WireError
}
