import { heapShare } from '../../kit/index.ts'

/** How much a gateway holds at most. */
export interface SessionBounds {
  /** Beyond it no session is started: `overloaded`. */
  readonly maxOpenSessions: number
  /** Sessions that nobody uses and that stay in memory. The others are read from the store when they are used again. */
  readonly maxRemembered: number
  /** What they hold there, text aside. Beyond it those that were not used for longest are forgotten. */
  readonly maxRememberedBytes: number
  /**
   * Text of last requests, which makes the next ones fast to find. Beyond it sessions that nobody uses are forgotten; if
   * there is none, requests take their time.
   */
  readonly maxRememberedChars: number
  /** Bytes of last bodies, so that the next ones need not be read whole, and as many of what they say. Beyond it they are. */
  readonly maxRememberedBodies: number
  /** Messages in one session. Beyond it the session takes no request: `budget_exhausted`. */
  readonly maxMessages: number
  /** Requests under way, waiting ones included. Beyond it one is refused: `overloaded`. */
  readonly maxRunning: number
  /**
   * How long one request waits for a backend in all: for a permit, a rate limit, between tries, parked. Time on the wire
   * does not count. Beyond it the request is refused: `overloaded`.
   */
  readonly maxWaitMs: number
  /** How often a client whose stream is asked for whole is told that it is on its way. */
  readonly beatMs: number
}

export const defaultSessionBounds: SessionBounds = {
  maxOpenSessions: 100_000,
  maxRemembered: 4096,
  maxRememberedBytes: heapShare(256 * 1024 * 1024),
  maxRememberedChars: heapShare(64 * 1024 * 1024),
  maxRememberedBodies: heapShare(128 * 1024 * 1024),
  maxMessages: 100_000,
  maxRunning: 16_384,
  maxWaitMs: 60_000,
  beatMs: 30_000,
}
