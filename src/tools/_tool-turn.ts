import { MillraceError } from '../errors/index.ts'
import { type AbortListener, maxTimerMs, nearestNames, offAbort, onAbort } from '../kit/index.ts'
import type { ToolCall, ToolMessage, ToolRecord } from '../schema/index.ts'
import { CallScope } from './_call-scope.ts'
import type { Attempt, PreparedTool } from './_prepared-tool.ts'
import { toolCalls, type ToolCallEvent } from './tool-calls.ts'

export interface ToolResult {
  readonly message: ToolMessage
  readonly record: ToolRecord
}

export interface ToolCallOptions<Context extends object> {
  /** Shared by all calls of a rollout. A tool sees it with a `signal` of its own call in place of the rollout's. */
  readonly context: Context
  readonly signal: AbortSignal
  /** For tools that set none themselves; 120 s if not given. */
  readonly timeoutMs?: number
  /**
   * What the journal holds of a call, when a rollout is resumed. Asked for every call but those to tools that are to be
   * rerun; where it knows nothing, the tool runs.
   */
  readonly recall?: (call: ToolCall, index: number) => ToolResult | undefined
  /** What the calls are traced as, for whoever listens to tool calls; see `RolloutStartEvent`. */
  readonly trace?: object
}

/** Generous: what takes longer should say so with a `timeoutMs` of its own. */
const defaultTimeoutMs = 120_000

/** How many names the model is told when it asks for a tool that does not exist. */
const maxListedNames = 50

interface RunningCall {
  readonly scope: CallScope<object>
  readonly timer: NodeJS.Timeout
  readonly startedAt: number
}

/**
 * The tool calls of one model turn. Calls start in order; one to an exclusive tool waits for those before it and holds
 * back those after it. While all tools answer synchronously nothing is awaited: timers, listeners and promises are made
 * for the first call that runs on. A tool that neither answers nor heeds its signal is left behind; what it comes to
 * later is dropped.
 */
export class ToolTurn<Context extends object> implements AbortListener {
  readonly #tools: ReadonlyMap<string, PreparedTool<Context>>
  readonly #calls: readonly ToolCall[]
  readonly #options: ToolCallOptions<Context>
  readonly #results: ToolResult[] = []
  readonly #running = new Map<number, RunningCall>()
  #next = 0
  #exclusiveRuns = false
  #end: PromiseWithResolvers<ToolResult[]> | undefined

  constructor(
    tools: ReadonlyMap<string, PreparedTool<Context>>,
    calls: readonly ToolCall[],
    options: ToolCallOptions<Context>,
  ) {
    this.#tools = tools
    this.#calls = calls
    this.#options = options
  }

  run(): Promise<ToolResult[]> {
    const { signal } = this.#options
    if (signal.aborted) return Promise.reject(signal.reason)
    try {
      this.#startCalls()
    } catch (error) {
      this.#stop(error)
      return Promise.reject(error)
    }
    if (this.#running.size === 0) return Promise.resolve(this.#results)
    this.#end = Promise.withResolvers()
    onAbort(signal, this)
    return this.#end.promise
  }

  #startCalls(): void {
    for (; this.#next < this.#calls.length; this.#next += 1) {
      const call = this.#calls[this.#next]
      if (!call) return
      const prepared = this.#tools.get(call.function.name)
      const isExclusive = prepared?.tool.exclusive === true
      if (this.#running.size > 0 && (isExclusive || this.#exclusiveRuns)) return
      this.#start(call, this.#next, prepared)
      this.#exclusiveRuns = isExclusive && this.#running.size > 0
    }
  }

  #start(call: ToolCall, index: number, prepared: PreparedTool<Context> | undefined): void {
    const { context, signal, recall } = this.#options
    if (recall && prepared?.tool.resume !== 'rerun') {
      const recorded = recall(call, index)
      if (recorded) {
        this.#results[index] = recorded
        return
      }
    }
    const startedAt = performance.now()
    if (!prepared) {
      this.#settle(index, startedAt, { status: 'unknown_tool', content: unknownTool(call, this.#tools) })
      return
    }
    const scope = new CallScope<Context>()
    let attempt: Attempt | Promise<Attempt>
    try {
      attempt = prepared.attempt(call.function.arguments, new Proxy(context, scope))
    } catch (error) {
      this.#publish(index, 'ended_attempt', startedAt)
      throw error
    }
    if (!(attempt instanceof Promise)) {
      // A tool may itself have brought the rollout to its end.
      if (signal.aborted) throw signal.reason
      this.#settle(index, startedAt, attempt)
      return
    }
    const timeoutMs = Math.min(prepared.tool.timeoutMs ?? this.#options.timeoutMs ?? defaultTimeoutMs, maxTimerMs)
    const onTimeout = (): void => {
      const after = `${prepared.name} took longer than ${timeoutMs / 1_000} s and was stopped`
      this.#running.delete(index)
      scope.abort(new MillraceError('tool_timeout', after))
      this.#settle(index, startedAt, { status: 'timeout', content: `Error: ${after}` })
      this.#goOn()
    }
    this.#running.set(index, { scope, timer: setTimeout(onTimeout, timeoutMs), startedAt })
    attempt.then(
      (settled) => {
        if (!this.#takeOut(index)) return
        this.#settle(index, startedAt, settled)
        this.#goOn()
      },
      (error: unknown) => {
        if (!this.#takeOut(index)) return
        this.#publish(index, 'ended_attempt', startedAt)
        this.#fail(error)
      },
    )
    if (signal.aborted) throw signal.reason
  }

  /** Takes a call out of those that run; false if it timed out or the turn was stopped in the meantime. */
  #takeOut(index: number): boolean {
    clearTimeout(this.#running.get(index)?.timer)
    return this.#running.delete(index)
  }

  #settle(index: number, startedAt: number, { status, content }: Attempt): void {
    const call = this.#calls[index]
    if (!call) return
    const ms = Math.round((performance.now() - startedAt) * 1_000) / 1_000
    this.#results[index] = {
      message: { role: 'tool', tool_call_id: call.id, content },
      record: { name: call.function.name, status, ms },
    }
    this.#publish(index, status, startedAt)
  }

  #publish(index: number, status: ToolCallEvent['status'], startedAt: number): void {
    const call = this.#calls[index]
    if (!call || !toolCalls.hasSubscribers) return
    const { trace } = this.#options
    const ms = performance.now() - startedAt
    toolCalls.publish({ trace, tool: call.function.name, callId: call.id, status, startedAt, ms })
  }

  #goOn(): void {
    try {
      if (this.#running.size === 0) this.#exclusiveRuns = false
      this.#startCalls()
    } catch (error) {
      this.#fail(error)
      return
    }
    if (this.#running.size > 0) return
    offAbort(this.#options.signal, this)
    this.#end?.resolve(this.#results)
  }

  /** The signal aborted. */
  handleEvent(): void {
    this.#fail(this.#options.signal.reason)
  }

  #fail(reason: unknown): void {
    this.#stop(reason)
    this.#end?.reject(reason)
  }

  #stop(reason: unknown): void {
    offAbort(this.#options.signal, this)
    const running = [...this.#running]
    this.#running.clear()
    for (const [index, { scope, timer, startedAt }] of running) {
      clearTimeout(timer)
      this.#publish(index, 'stopped', startedAt)
      scope.abort(reason)
    }
  }
}

function unknownTool(call: ToolCall, tools: ReadonlyMap<string, unknown>): string {
  const wanted = call.function.name.slice(0, 100)
  const names = [...tools.keys()]
  const near = nearestNames(wanted, names)
  const suggestion = near.length > 0 ? ` Did you mean ${near.join(' or ')}?` : ''
  if (names.length === 0) return `Error: there is no tool named "${wanted}"; there are no tools at all.`
  const more = names.length > maxListedNames ? ` and ${names.length - maxListedNames} more` : ''
  return `Error: there is no tool named "${wanted}".${suggestion} Tools: ${names.slice(0, maxListedNames).join(', ')}${more}.`
}
