import { heapShare } from '../../kit/index.ts'

/** What a gateway's door takes in at most. Beyond a bound a request is refused, in the words of its API. */
export interface GatewayBounds {
  readonly maxBodyBytes: number
  /** Of all requests that are being read or answered: a body is held until its reply has ended. */
  readonly maxBodiesBytes: number
  readonly maxHeaderBytes: number
  /** Arrays and objects within each other. */
  readonly maxJsonDepth: number
  /** From the first byte of a request to the last. */
  readonly maxUploadMs: number
  /** At once; others wait for half of `maxStallMs` at most. */
  readonly maxExports: number
  /** A client that takes nothing of what is written for it for so long is given up. */
  readonly maxStallMs: number
}

const kibibyte = 1024
const mebibyte = 1024 * kibibyte

export const defaultGatewayBounds: GatewayBounds = {
  maxBodyBytes: 32 * mebibyte,
  maxBodiesBytes: heapShare(512 * mebibyte),
  maxHeaderBytes: 16 * kibibyte,
  maxJsonDepth: 64,
  maxUploadMs: 2 * 60_000,
  maxExports: 8,
  maxStallMs: 60_000,
}
