import { heapShare } from '../../kit/index.ts'

/** The most that a gateway holds. */
export interface SessionBounds {
  /** The most open sessions. Beyond it no session is started: `overloaded`. */
  readonly maxOpenSessions: number
  /** The most idle sessions that stay in memory. The others are read from the store when they are used again. */
  readonly maxRemembered: number
  /** The most memory that idle sessions hold, text aside. Beyond it the least recently used are forgotten. */
  readonly maxRememberedBytes: number
  /**
   * The most text of last requests, which makes the next ones fast to find. Beyond it idle sessions are forgotten; if there
   * are none, requests take longer.
   */
  readonly maxRememberedChars: number
  /** The most bytes of last bodies and their text, which save parsing the next ones whole. Beyond it, bodies are not kept. */
  readonly maxRememberedBodies: number
  /** The most messages in one session. Beyond it the session takes no request: `budget_exhausted`. */
  readonly maxMessages: number
  /** The most requests under way, waiting ones included. Beyond it a request is refused: `overloaded`. */
  readonly maxRunning: number
  /** `maxWaitMs` of models whose config does not set it. Beyond it a request is refused: `model_overloaded`. */
  readonly maxWaitMs: number
  /** `maxRateLimitWaitMs` of models whose config does not set it. Beyond it a request is refused: `model_rate_limited`. */
  readonly maxRateLimitWaitMs: number
  /** How often a client that asked for a stream gets a sign of life while the reply is fetched whole. */
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
  // A restart of an engine takes one to three minutes.
  maxWaitMs: 5 * 60_000,
  maxRateLimitWaitMs: 60_000,
  beatMs: 30_000,
}
