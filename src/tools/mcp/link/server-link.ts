import type { JSONRPCRequest, Transport } from '@modelcontextprotocol/client'
import type { CallOutcome } from './pending-call.ts'

/** How a server ended, as far as that is known. */
export interface ServerEnding {
  readonly exitCode?: number | undefined
  readonly signal?: string | undefined
  /** The end of the server's stderr. */
  readonly stderr?: string | undefined
}

/** A transport of the SDK and what is behind it: a process, or a session on a server over HTTP. */
export interface ServerLink {
  readonly transport: Transport
  /** Whether each call has a request of its own, so that one that breaks does not affect the others. */
  readonly hasRequestPerCall: boolean
  /** Why the link ended, if it ended by itself and knows the reason. */
  readonly failure: Error | undefined
  /** Resolves when the process behind the link is gone, where there is one. */
  readonly ended?: Promise<unknown>
  /** Complete once the link is closed. */
  readonly ending: ServerEnding
  /**
   * Sends the request of a call. The answer comes as a message of the transport. `onFailure` is called if there will be no
   * answer, and may also be called after the answer. Returns the request, where a call has its own.
   */
  sendCall(message: JSONRPCRequest & { id: number }, onFailure: (outcome: CallOutcome) => void): CallRequest | undefined
  /** Resolves when nothing is left of the link. May be called more than once. */
  close(): Promise<void>
}

/** The request of one call. Its sender says when it ends. */
export interface CallRequest {
  /** Whether anything of the request has left this process. */
  readonly isSent: boolean
  /** The answer has come: the request ends by itself, soon. */
  release(): void
  /** Nobody waits for the answer any more. */
  abort(): void
}
