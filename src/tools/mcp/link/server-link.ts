import type { JSONRPCRequest, Transport } from '@modelcontextprotocol/client'
import type { CallOutcome } from './pending-call.ts'

/** How a server ended, as far as it is known. */
export interface ServerEnding {
  readonly exitCode?: number | undefined
  readonly signal?: string | undefined
  /** The end of what it wrote to stderr. */
  readonly stderr?: string | undefined
}

/** A transport of the SDK and what stands behind it: a process, or a session on a server over HTTP. */
export interface ServerLink {
  readonly transport: Transport
  /** Each call has a request of its own, and one that breaks leaves the others alone. */
  readonly hasRequestPerCall: boolean
  /** Why it ended, if it did so by itself and knows. */
  readonly failure: Error | undefined
  /** Resolves when what stands behind it is gone, where that can be told. */
  readonly ended?: Promise<unknown>
  /** Complete once the link is closed. */
  readonly ending: ServerEnding
  /**
   * Sends the request of a call. The answer comes as a message of the transport. `onFailure` hears if there will be none, and
   * may hear so after the answer, too. What it returns is the request, where a call has its own.
   */
  sendCall(message: JSONRPCRequest & { id: number }, onFailure: (outcome: CallOutcome) => void): CallRequest | undefined
  /** Nothing is left when it resolves. May be called often. */
  close(): Promise<void>
}

/** The request of one call. Whoever sent it says how it comes to its end. */
export interface CallRequest {
  /** Whether anything of it has left this process. */
  readonly isSent: boolean
  /** Its answer is there: it ends by itself, soon. */
  release(): void
  /** Nobody waits for it any more. */
  abort(): void
}
