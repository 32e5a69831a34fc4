import type { JSONRPCRequest, Transport } from '@modelcontextprotocol/client'
import { MillraceError } from '../../../errors/index.ts'
import { type AbortListener, offAbort, onAbort, timerMs } from '../../../kit/index.ts'
import type { ContentPart, Json } from '../../../schema/index.ts'

/** The SDK counts its own requests on the same connection from 0. */
const firstId = 2 ** 30
/** More calls at once on one connection are a mistake: a further call fails with `overloaded`. */
const maxPending = 65_536

export class PendingCalls {
  readonly #calls = new Map<number, PendingCall>()
  #nextId = firstId

  get size(): number {
    return this.#calls.size
  }

  /** Gives a call its id. Throws at the limit, before anything was written. */
  add(call: PendingCall, server: string): void {
    if (this.#calls.size >= maxPending) {
      throw new MillraceError(
        'overloaded',
        `${maxPending} calls already wait for server '${server}': lower the concurrency`,
      )
    }
    call.id = this.#nextId
    this.#nextId += 1
    this.#calls.set(call.id, call)
  }

  static isOurs(id: unknown): id is number {
    return typeof id === 'number' && id >= firstId
  }

  find(id: number): PendingCall | undefined {
    return this.#calls.get(id)
  }

  /** Takes a call out; false if it was not there any more. Only the caller that takes a call out settles it. */
  take(call: PendingCall): boolean {
    return this.#calls.delete(call.id)
  }

  all(): PendingCall[] {
    return [...this.#calls.values()]
  }
}

/** How a request for a tool ended, as the connection saw it. The session decides what that means. */
export type CallOutcome =
  | { readonly kind: 'result'; readonly result: unknown }
  | { readonly kind: 'rpc-error'; readonly code: number; readonly message: string }
  | { readonly kind: 'timeout'; readonly wasSent: boolean }
  | { readonly kind: 'aborted' }
  | CallFailure

/**
 * Why there is no answer. `refused`: the server refused the call before it looked at it (an HTTP status), and is still there.
 * `cut`: the request of this call ended; the server's session may still exist. `lost`: the connection, or the server's session on
 * it, is gone.
 */
export interface CallFailure {
  readonly kind: 'refused' | 'cut' | 'lost'
  /** False only if the server cannot have seen the call. */
  readonly mayHaveRun: boolean
  readonly cause: Error
  /** The server has too much to do just now, and may be asked again after this time. */
  readonly retryAfterMs?: number
  /** The status is one with which a proxy answers for a server that is away. */
  readonly isOfGateway?: boolean
}

export class PendingCall implements AbortListener {
  readonly outcome: Promise<CallOutcome>
  readonly onProgress: ServerCall['onProgress']
  id = 0
  /** The HTTP request of this call alone, where a call has one. */
  request: CallRequest | undefined
  readonly #abandon: (call: PendingCall, why: 'timeout' | 'aborted') => void
  readonly #signal: AbortSignal
  readonly #timer: NodeJS.Timeout
  readonly #resolve: (outcome: CallOutcome) => void

  /** `abandon` is called when nobody waits for the answer any more. */
  constructor(
    { signal, onProgress }: ServerCall,
    timeoutMs: number,
    abandon: (call: PendingCall, why: 'timeout' | 'aborted') => void,
  ) {
    const { promise, resolve } = Promise.withResolvers<CallOutcome>()
    this.outcome = promise
    this.onProgress = onProgress
    this.#abandon = abandon
    this.#signal = signal
    this.#resolve = resolve
    // Progress does not move the deadline: a tool that reports progress for ever would never end.
    this.#timer = setTimeout(() => abandon(this, 'timeout'), timerMs(timeoutMs))
    onAbort(signal, this)
  }

  settle(outcome: CallOutcome): void {
    clearTimeout(this.#timer)
    offAbort(this.#signal, this)
    this.#resolve(outcome)
  }

  handleEvent(): void {
    this.#abandon(this, 'aborted')
  }
}

/** How a server ended, as far as that is known. */
export interface ServerEnding {
  readonly exitCode?: number | undefined
  readonly signal?: string | undefined
  readonly stderr?: string | undefined
}

/** A transport of the SDK and what is behind it: a process, or a session on a server over HTTP. */
export interface ServerLink {
  readonly transport: Transport
  /** Whether each call has a request of its own, so that one that breaks does not affect the others. */
  readonly hasRequestPerCall: boolean
  /** Why the link ended, if it ended by itself and knows the reason. */
  readonly failure: Error | undefined
  /** The leader of the process group behind the link, where there is one. */
  readonly pid?: number
  /** Resolves when the process behind the link is gone, where there is one. */
  readonly ended?: Promise<unknown>
  /** Complete once the link is closed. */
  readonly ending: ServerEnding
  /** The answer comes as a message of the transport. `onFailure` may be called after it. Returns the call's own request, if any. */
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

export interface ServerCall {
  readonly tool: string
  readonly arguments: Readonly<Record<string, unknown>>
  readonly signal: AbortSignal
  /** The time that the rollout has left; the server's own limit counts too. */
  readonly timeoutMs?: number
  /** Called when the call begins to wait for its server, which takes no time of the call. Returns what to call afterwards. */
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
