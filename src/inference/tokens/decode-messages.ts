import type { WireError } from '../../errors/index.ts'
import type { ScannedReply } from './token-scanner.ts'

/** To a decode thread: a reply in the pieces it came in, which are given away with it. */
export interface DecodeJob {
  readonly job: number
  readonly pieces: readonly Uint8Array<ArrayBuffer>[]
}

export type ToDecodeThread = DecodeJob | 'close'

/** What came of a reply. */
export interface DecodedReply {
  readonly scanned: ScannedReply
  /** What the ids of the prompt were read from, if they are most of the reply. */
  readonly promptText?: Uint8Array<ArrayBuffer>
}

/** Back from the thread; the arrays are given away as well. */
export type DecodeAnswer = DecodedAnswer | UndecodedReply

interface DecodedAnswer extends DecodedReply {
  readonly kind: 'decoded'
  readonly job: number
  readonly workMs: number
}

/** A reply that the thread could not cope with. It lives on, for the replies of others. */
interface UndecodedReply {
  readonly kind: 'failed'
  readonly job: number
  readonly error: WireError
}
