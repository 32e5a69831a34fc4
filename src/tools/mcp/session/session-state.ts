import { MillraceError } from '../../../errors/index.ts'
import { causesOf, type Redaction } from '../../../kit/index.ts'
import { errorText } from '../transports/call-failure.ts'
import type { CallFailure, ServerCall, ServerEnding } from '../transports/pending-calls.ts'
import type { Connection } from './connection.ts'

type FailedAttempt = CallFailure & { readonly connection: Connection }

/** A call with all its attempts: one, and one more for each kind of failure that it met. */
export class CallAttempts {
  readonly call: ServerCall
  /** The hold of the rollout that made the call: by the time the call ends, another rollout may hold the session. */
  readonly lease: SessionState
  readonly limitMs: number
  readonly #startedAt = performance.now()
  #failed: readonly FailedAttempt[] = []
  #waitedMs = 0
  #waitStartedAt = 0

  constructor(call: ServerCall, lease: SessionState, limitMs: number) {
    this.call = call
    this.lease = lease
    this.limitMs = limitMs
  }

  get number(): number {
    return this.#failed.length + 1
  }

  get elapsedMs(): number {
    return performance.now() - this.#startedAt
  }

  get leftMs(): number {
    return this.limitMs - this.elapsedMs + this.#waitedMs
  }

  /** The call begins to wait for its server, on the time of its rollout and not on its own: `leftMs` counts that when it ends. */
  startWait(): void {
    this.#waitStartedAt = performance.now()
  }

  endWait(): void {
    this.#waitedMs += performance.now() - this.#waitStartedAt
  }

  get lastFailure(): FailedAttempt | undefined {
    return this.#failed.at(-1)
  }

  get mayHaveRun(): number {
    return this.#failed.filter(({ mayHaveRun }) => mayHaveRun).length
  }

  hasFailedBy(kind: CallFailure['kind']): boolean {
    return this.#failed.some((failed) => failed.kind === kind)
  }

  failed(failure: CallFailure, connection: Connection): void {
    this.#failed = [...this.#failed, { ...failure, connection }]
  }
}

/** Whether the rollout that holds a session has told its server anything, so that a restart would lose it. */
export class SessionState {
  /** The newest connection on which a call may have run. */
  #lastGeneration: number | undefined

  /** Whether a restart now would make the server forget something. */
  get hasRunCalls(): boolean {
    return this.#lastGeneration !== undefined
  }

  /** Whether the server behind this connection does not know what an earlier one was told. */
  isUnknownTo(generation: number): boolean {
    return this.#lastGeneration !== undefined && generation > this.#lastGeneration
  }

  /** A call that may have run on this connection has ended. */
  noteCall(generation: number): void {
    // A call may end on an older connection after others have ended on the next.
    if (this.#lastGeneration === undefined || generation > this.#lastGeneration) this.#lastGeneration = generation
  }
}

export interface FailureFacts {
  readonly server: string
  readonly tool?: string | undefined
  readonly attempt?: number | undefined
  readonly generation: number
  readonly ending?: ServerEnding | undefined
  readonly elapsedMs: number
  readonly mayHaveRun?: boolean | undefined
  readonly reconnectError?: string | undefined
  readonly sessionRestarted?: true | undefined
  /** The HTTP status with which the server refused to be opened. */
  readonly status?: number | undefined
}

/** How much of a foreign message is kept: it may be a whole web page. */
const maxForeignChars = 500

/** Makes the errors of one session: `tool_infra`, with everything that helps to find the reason and no secrets. */
export class SessionErrors {
  readonly #redaction: Redaction

  constructor(redaction: Redaction) {
    this.#redaction = redaction
  }

  infra(message: string, facts: FailureFacts, cause: unknown): MillraceError {
    const { ending, elapsedMs, reconnectError, ...others } = facts
    const data = {
      ...others,
      exitCode: ending?.exitCode,
      signal: ending?.signal,
      stderr: ending?.stderr === undefined ? undefined : this.#redaction.text(ending.stderr),
      elapsedMs: Math.round(elapsedMs),
      cause: this.text(cause),
      reconnectError,
    }
    return new MillraceError('tool_infra', this.#redaction.text(message), {
      data: Object.fromEntries(Object.entries(data).filter(([, value]) => value !== undefined)),
      cause: cause instanceof Error ? this.#redaction.error(cause) : cause,
    })
  }

  /** An error in one line, with its causes: `fetch failed: connect ECONNREFUSED 127.0.0.1:80`. */
  text(error: unknown): string {
    let text = ''
    for (const cause of causesOf(error)) {
      const message = cause instanceof MillraceError ? cause.rawMessage : this.#foreignText(cause)
      // Many errors repeat their cause in their own words.
      if (!text.includes(message)) text += text === '' ? message : `: ${message}`
    }
    return this.#redaction.text(text || String(error))
  }

  /** The text is redacted before it is cut: a cut could leave half a secret that nothing finds. */
  #foreignText(error: Error): string {
    // A redacted error of ours has its code before its words.
    const message = this.#redaction.text(errorText(error).replace(/^\[\w+\] /, ''))
    return message.length > maxForeignChars ? `${message.slice(0, maxForeignChars)}…` : message
  }
}
