import type { ScannedReply } from './_token-scanner.ts'

/** To a decode thread: a reply in the pieces it came in, which are given away with it. */
export interface DecodeJob {
  readonly job: number
  readonly pieces: readonly Uint8Array<ArrayBuffer>[]
}

/** Back from it; the arrays are given away as well. */
export interface DecodeAnswer {
  readonly job: number
  readonly scanned: ScannedReply
  readonly workMs: number
}
