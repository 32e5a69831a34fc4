import { MillraceError } from '../../../errors/index.ts'
import { AbortScope, withAbort, Resource, sleep } from '../../../kit/index.ts'
import { answerContent } from '../transports/rpc-messages.ts'
import { CallAttempts, type FailureFacts, SessionErrors, SessionState } from './session-state.ts'
import type { Connection } from './connection.ts'
import {
  ReconnectingConnection,
  type ReconnectingConnectionOptions,
  type ConnectionState,
} from './reconnecting-connection.ts'
import type { CallFailure, CallOutcome, ServerAnswer, ServerCall } from '../transports/pending-calls.ts'
import { redactionOf, serverDefaults } from '../config/server-config.ts'
import type { ToolCatalogue } from '../catalogue/tool-catalogue.ts'

export type McpSessionOptions = ReconnectingConnectionOptions

/** JSON-RPC errors by which a server says that it does not understand the request itself: no model can do better. */
const protocolErrors = new Set([-32_700, -32_600, -32_601])

/**
 * One kept connection to one server, for listing and for calling, that is opened again when it is lost. Any number of calls
 * run on it at once.
 *
 * | what happens to a call                                          | who is told                                            |
 * |-----------------------------------------------------------------|--------------------------------------------------------|
 * | a result, also one with `isError`                               | the model                                              |
 * | a JSON-RPC error: bad arguments (-32602), the tool failed       | the model, as `isError`                                |
 * | a tool that the server has not, or that is denied               | the model, as `isError`; the server is not asked       |
 * | no answer in time                                               | the model, as `isError`; the server is told to stop    |
 * | the connection is lost, and to repeat the call is safe          | nobody: it is repeated once on a new connection        |
 * | only its own HTTP request broke, and to repeat it is safe       | nobody: it is repeated once on the same connection     |
 * | HTTP 429 or 503, and there is time to wait as long as they say  | nobody: it is repeated once after that                 |
 * | one of these otherwise, or once more                            | the rollout: `tool_infra`, with `mayHaveRun`           |
 * | the server has forgotten what it was told, and that is to fail  | the rollout: `tool_infra`; nothing is opened again     |
 * | the server cannot be opened again, and its breaker waits           | nobody: the call waits until the server is back        |
 * | the server is away for longer than `awayTimeoutMs`              | the rollout: `tool_infra`, `Reconnect to … also failed` |
 * | the server cannot be opened again, and its breaker does not wait   | the rollout: `tool_infra`, `Reconnect to … also failed` |
 * | too many reconnects in a while (the circuit is open)            | the rollout: `tool_infra`, at once; it waits if the server is shared |
 * | another status, a JSON-RPC error about the protocol, no result  | the rollout: `tool_infra`; nothing is repeated         |
 * | the caller's signal aborts                                      | the caller: its reason; the server is told to stop     |
 * | the session is closed                                           | the caller: `closed`                                   |
 *
 * Safe to repeat is a call that the server cannot have seen, or of a tool that says it is read-only or idempotent, or any if the
 * configuration says `retry: always`.
 */
export class McpSession extends Resource {
  readonly name: string
  readonly #options: McpSessionOptions
  readonly #callTimeoutMs: number
  readonly #errors: SessionErrors
  readonly #kept: ReconnectingConnection
  #lease = new SessionState()

  constructor(options: McpSessionOptions) {
    super()
    const { name, config } = options
    this.name = name
    this.#options = options
    this.#callTimeoutMs = config.callTimeoutMs ?? serverDefaults.callTimeoutMs
    this.#errors = new SessionErrors(redactionOf(config))
    this.#kept = new ReconnectingConnection(options, this.#errors)
  }

  get catalogue(): ToolCatalogue | undefined {
    return this.#kept.tools.catalogue
  }

  get generation(): number {
    return this.#kept.generation
  }

  get isOpen(): boolean {
    return this.#kept.usable !== undefined
  }

  /** The leader of the server's process group; undefined if the server is not open, or no process of ours. */
  get pid(): number | undefined {
    return this.#kept.usable?.pid
  }

  get state(): ConnectionState {
    return this.#kept.state
  }

  /** Starts, initialises and lists, once for all who ask meanwhile. Leaves nothing running if it rejects; may be tried again. */
  async open(signal?: AbortSignal): Promise<ToolCatalogue> {
    this.throwIfClosed()
    await this.#kept.open(signal)
    if (this.catalogue) return this.catalogue
    throw new MillraceError('internal', `server '${this.name}' is open and has no list of tools`)
  }

  beginLease(): void {
    this.#lease = new SessionState()
  }

  async call(call: ServerCall): Promise<ServerAnswer> {
    this.throwIfClosed()
    call.signal.throwIfAborted()
    const limitMs = Math.min(this.#callTimeoutMs, call.timeoutMs ?? Number.POSITIVE_INFINITY)
    const attempts = new CallAttempts(call, this.#lease, limitMs)
    for (;;) {
      const connection = this.#kept.usable ?? (await this.#reach(attempts))
      // The caller may have left between two attempts, and a call only hears of aborts after it was made.
      call.signal.throwIfAborted()
      const refusal = this.#kept.tools.refusal(call.tool)
      if (refusal !== undefined)
        return { content: refusal, isError: true, detail: this.#unreported(connection, attempts) }
      const answer = await this.#callOn(connection, attempts)
      if (answer) return answer
    }
  }

  protected override onClose(): Promise<void> {
    return this.#kept.close(this.closedSignal.reason)
  }

  /** Makes one attempt; undefined if there is to be another one. */
  async #callOn(connection: Connection, attempts: CallAttempts): Promise<ServerAnswer | undefined> {
    const { call, leftMs } = attempts
    const outcome: CallOutcome = leftMs > 0 ? await connection.call(call, leftMs) : { kind: 'timeout', wasSent: false }
    this.#kept.used(connection)
    switch (outcome.kind) {
      case 'result': {
        const answer = answerContent(outcome.result)
        if (answer) return { ...answer, detail: this.#detail(connection, attempts) }
        throw this.#infra(
          `server '${this.name}' answered '${call.tool}' with a value that is not a tool result`,
          connection,
          attempts,
        )
      }
      case 'rpc-error': {
        const message = outcome.message || `error ${outcome.code} without a message`
        if (!protocolErrors.has(outcome.code)) {
          return { content: message, isError: true, detail: this.#detail(connection, attempts) }
        }
        throw this.#infra(
          `server '${this.name}' does not understand tools/call: ${message} (${outcome.code})`,
          connection,
          attempts,
        )
      }
      case 'timeout':
        return this.#tooLate(connection, attempts, outcome.wasSent)
      case 'aborted':
        attempts.lease.noteCall(connection.generation)
        throw call.signal.reason
      case 'refused':
      case 'cut':
      case 'lost':
        break
    }
    await this.#fail(connection, attempts, outcome)
    return undefined
  }

  #tooLate(connection: Connection, attempts: CallAttempts, wasSent: boolean): ServerAnswer {
    const tool = `The tool '${attempts.call.tool}' of server '${this.name}'`
    const limit = `${Math.round(attempts.limitMs)} ms`
    if (!wasSent) {
      const content = `${tool} could not be called within ${limit}.`
      return { content, isError: true, detail: { ...this.#unreported(connection, attempts), timedOut: true } }
    }
    const content = `${tool} did not answer within ${limit} and was told to stop.`
    return { content, isError: true, detail: { ...this.#detail(connection, attempts), timedOut: true } }
  }

  /** Returns if the call is to be made again; throws if not. */
  async #fail(connection: Connection, attempts: CallAttempts, given: CallFailure): Promise<void> {
    const failure = (await this.#isBehindGateway(connection, attempts, given))
      ? { ...given, kind: 'lost' as const }
      : given
    if (failure.kind === 'lost') {
      // First, because a call that comes while this one waits opens the next connection, and has to know why.
      this.#kept.noteLoss(connection, failure.cause)
      // Only the connection that the call was made on, which may not be the present one any more. Once it is gone, it is also
      // known how its process ended. If it cannot be closed, the next connection says so.
      await connection.abandon().catch(() => {})
      this.#kept.noteLoss(connection, failure.cause)
    }
    this.throwIfClosed()
    if (!this.#mayRepeat(attempts, failure)) {
      throw this.#infra(this.#failureText(attempts, failure), connection, attempts, failure)
    }
    attempts.failed(failure, connection)
    if (failure.kind === 'refused')
      await sleep(failure.retryAfterMs ?? 0, AbortSignal.any([attempts.call.signal, this.closedSignal]))
  }

  /** Whether a proxy answered in the place of a server that is away. */
  async #isBehindGateway(connection: Connection, attempts: CallAttempts, failure: CallFailure): Promise<boolean> {
    if (failure.kind !== 'refused' || !failure.isOfGateway || this.#options.breaker?.waits !== true) return false
    return !this.#mayRepeat(attempts, failure) && !(await connection.answers())
  }

  #mayRepeat(attempts: CallAttempts, failure: CallFailure): boolean {
    if (attempts.hasFailedBy(failure.kind)) return false
    // The server did not say that it can be asked again, or not in time.
    if (failure.kind === 'refused' && (failure.retryAfterMs ?? Number.POSITIVE_INFINITY) >= attempts.leftMs)
      return false
    const { retry = 'safe' } = this.#options.config
    if (retry !== 'safe') return retry === 'always'
    return !failure.mayHaveRun || this.#kept.tools.isIdempotent(attempts.call.tool)
  }

  #failureText({ call, number, lastFailure, mayHaveRun: before }: CallAttempts, failure: CallFailure): string {
    const what = {
      refused: `refused '${call.tool}'`,
      cut: `aborted '${call.tool}' without an answer`,
      lost: `was lost during '${call.tool}'`,
    }[failure.kind]
    const message = `server '${this.name}' ${what}: ${this.#errors.text(failure.cause)}`
    const runs = before + Number(failure.mayHaveRun)
    if (lastFailure) {
      const fate = ['The call did not run', 'The call may have run'][runs] ?? 'The call may have run more than once'
      return `${message}. That was attempt ${number}, after: ${this.#errors.text(lastFailure.cause)}. ${fate}.`
    }
    if (failure.kind === 'refused') return message
    if (runs === 0) return `${message}. The call did not run.`
    return this.#options.config.retry === 'never'
      ? `${message}. The call may have run, and retry: 'never' forbids a repetition.`
      : `${message}. The call may have run, so it was not repeated. Find out first why the server failed. If each of its tools may run twice, retry: 'always' repeats these calls.`
  }

  async #reach(attempts: CallAttempts): Promise<Connection> {
    const { call, lease, lastFailure } = attempts
    if (this.#options.config.onRestart === 'fail' && this.#keepsState && lease.hasRunCalls) {
      throw this.#forgotten(attempts)
    }
    try {
      return await this.#connectionFor(attempts)
    } catch (error) {
      this.throwIfClosed()
      call.signal.throwIfAborted()
      const why = this.#errors.text(error)
      const first = lastFailure ? this.#errors.text(lastFailure.cause) : this.#kept.trouble
      const again = this.generation > 0
      const before = first === undefined || first === why ? '' : `. Before that: ${first}`
      const message = again ? `Reconnect to '${this.name}' also failed: ${why}${before}` : why
      throw this.#errors.infra(
        message,
        {
          ...this.#facts(attempts, this.generation),
          // The process of the failed reconnect says more about the reason than the one that was lost before.
          ending: endingOf(error) ?? lastFailure?.connection.ending ?? this.#kept.ending,
          mayHaveRun: attempts.mayHaveRun > 0,
          ...(again && { reconnectError: why }),
        },
        lastFailure ? new Error(this.#errors.text(lastFailure.cause), { cause: error }) : error,
      )
    }
  }

  /**
   * With a breaker that waits, all of it is a wait for the server, on the time of the rollout: a server that is slow to start again
   * is not known to be away before its time to start has passed. Without one the call waits no longer than it may last.
   */
  async #connectionFor(attempts: CallAttempts): Promise<Connection> {
    const { call } = attempts
    const { breaker } = this.#options
    if (!breaker?.waits) return await this.#connectInTime(attempts)
    using scope = new AbortScope(call.signal)
    const { signal } = scope
    const { onAway } = call
    const resume = onAway?.(
      new MillraceError('tool_infra', `server '${this.name}' is being reopened: ${this.#lossText}`),
    )
    attempts.startWait()
    try {
      const opening = breaker.open(() => this.#kept.reach(signal), { signal, onAway })
      return await withAbort(opening, this.closedSignal)
    } finally {
      scope.abort(undefined)
      attempts.endWait()
      resume?.()
    }
  }

  async #connectInTime({ call, leftMs, limitMs }: CallAttempts): Promise<Connection> {
    const reason = (): Error =>
      new Error(`server '${this.name}' was not available within the ${Math.round(limitMs)} ms of the call`)
    using scope = new AbortScope(call.signal, leftMs, reason)
    return await this.#kept.reach(scope.signal)
  }

  /** The error for a rollout whose server lost its state. It ends the rollout, so another process would be for nothing. */
  #forgotten(attempts: CallAttempts): MillraceError {
    const { call, lastFailure } = attempts
    const when = lastFailure ? `was lost during '${call.tool}'` : 'was lost'
    const cause = lastFailure?.cause ?? new Error(this.#lossText)
    const forgot = 'It has lost the state of this rollout; set "onRestart": "tell" to tell the model and continue'
    return this.#errors.infra(
      `server '${this.name}' ${when}: ${this.#errors.text(cause)}. ${forgot}.`,
      {
        ...this.#facts(attempts, this.generation),
        ending: lastFailure?.connection.ending ?? this.#kept.ending,
        mayHaveRun: attempts.mayHaveRun > 0,
        sessionRestarted: true,
      },
      cause,
    )
  }

  #detail({ generation }: Connection, { number, lease }: CallAttempts): ServerAnswer['detail'] {
    const sessionRestarted = this.#noteRestart(generation, lease)
    return { server: this.name, generation, attempts: number, ...(sessionRestarted && { sessionRestarted }) }
  }

  #unreported({ generation }: Connection, { number }: CallAttempts): ServerAnswer['detail'] {
    return { server: this.name, generation, attempts: number }
  }

  /** True once after each restart, if the server may have forgotten what this rollout told it. */
  #noteRestart(generation: number, lease: SessionState): true | undefined {
    const isForgotten = lease.isUnknownTo(generation)
    lease.noteCall(generation)
    return isForgotten && this.#keepsState ? true : undefined
  }

  get #lossText(): string {
    return this.#kept.trouble ?? 'it was closed'
  }

  get #keepsState(): boolean {
    return this.#options.config.sharing !== 'shared'
  }

  #infra(message: string, connection: Connection, attempts: CallAttempts, failure?: CallFailure): MillraceError {
    const mayHaveRun = failure?.mayHaveRun ?? true
    const { generation, ending } = connection
    const facts = {
      ...this.#facts(attempts, generation),
      ending,
      mayHaveRun: mayHaveRun || attempts.mayHaveRun > 0,
      sessionRestarted: mayHaveRun ? this.#noteRestart(generation, attempts.lease) : undefined,
    }
    return this.#errors.infra(message, facts, failure?.cause ?? attempts.lastFailure?.cause)
  }

  #facts({ call, number, elapsedMs }: CallAttempts, generation: number): FailureFacts {
    return { server: this.name, tool: call.tool, attempt: number, generation, elapsedMs }
  }
}

function endingOf(error: unknown) {
  if (!(error instanceof MillraceError)) return undefined
  const { exitCode, signal, stderr } = error.data
  return {
    ...(typeof exitCode === 'number' && { exitCode }),
    ...(typeof signal === 'string' && { signal }),
    ...(typeof stderr === 'string' && { stderr }),
  }
}
