/** How much a server takes on, and so how much it can hold in memory. Beyond a bound it refuses; it never drops. */
export interface ServeBounds {
  /** Rollouts that were accepted and wait for a place; past it, `overloaded`. */
  readonly maxQueuedRollouts: number
  /** The tasks of those rollouts, as JSON. */
  readonly maxQueuedBytes: number
  readonly maxTasksPerRequest: number
  /** One task is parsed and validated in one turn of the loop: a megabyte takes a few milliseconds. */
  readonly maxTaskBytes: number
  readonly maxBodyBytes: number
  /** All bodies that are being read or checked at one time. */
  readonly maxBodiesBytes: number
  /** Ended requests whose id is still known, the newest ones; about 300 bytes each. An older id counts as new. */
  readonly maxRememberedRequests: number
  /** How long a request with an id of the client's own goes on after its last client has gone. */
  readonly abandonGraceMs: number
}

/** Most of what looks at a value calls itself for every level: writing it, validating it, sending it to a worker. */
export const maxJsonDepth = 256

const mebibyte = 1024 * 1024

export const defaultBounds: ServeBounds = {
  maxQueuedRollouts: 16_384,
  maxQueuedBytes: 256 * mebibyte,
  maxTasksPerRequest: 10_000,
  maxTaskBytes: mebibyte,
  maxBodyBytes: 64 * mebibyte,
  maxBodiesBytes: 256 * mebibyte,
  maxRememberedRequests: 100_000,
  abandonGraceMs: 15_000,
}
