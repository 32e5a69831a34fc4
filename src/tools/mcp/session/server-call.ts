import type { MillraceError } from '../../../errors/index.ts'
import type { ContentPart, Json } from '../../../schema/index.ts'

export interface ServerCall {
  readonly tool: string
  readonly arguments: Readonly<Record<string, unknown>>
  readonly signal: AbortSignal
  /** The time that the rollout has left; the server's own limit counts too. */
  readonly timeoutMs?: number
  /**
   * Called when the call begins to wait for its server to be opened again, and once more if the server turns out to be away. None
   * of this counts as time of the call. Returns what to call when the wait is over.
   */
  readonly onAway?: (why: MillraceError) => () => void
  readonly onProgress?: (progress: {
    readonly progress: number
    readonly total?: number
    readonly message?: string
  }) => void
}

/** A server's answer, or how it failed as a tool: the model sees an `isError`. */
export interface ServerAnswer {
  readonly content: string | readonly ContentPart[]
  readonly isError: boolean
  readonly structured?: Json
  readonly detail: ServerCallDetail
}

/** How an answer came about; kept with the tool message. */
export interface ServerCallDetail {
  readonly server: string
  /** The number of the connection since the session was made, from 1. */
  readonly generation: number
  readonly attempts: number
  /** The server was restarted since the last call of this rollout and has forgotten what it was told. */
  readonly sessionRestarted?: true
  /** There was no answer in time. If the server had been asked, it was told to stop, and may not have. */
  readonly timedOut?: true
}
