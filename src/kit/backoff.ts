/** Waits that grow exponentially, with jitter below, so that callers that failed together do not return together. */
export interface Backoff {
  readonly firstMs: number
  readonly maxMs: number
  readonly factor: number
}

/** The wait before try number `retry` (1 is the first repetition), between half and all of the exponential step. */
export function backoffMs(backoff: Backoff, retry: number, random: () => number = Math.random): number {
  const step = Math.min(backoff.maxMs, backoff.firstMs * backoff.factor ** (retry - 1))
  return step * (0.5 + 0.5 * random())
}
