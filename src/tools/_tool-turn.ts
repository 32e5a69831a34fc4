import { MillraceError } from '../errors/index.ts'
import { type AbortListener, timerMs, offAbort, onAbort, ArraySet } from '../kit/index.ts'
import type { ToolReports, ToolCall, ToolMessage, ToolRecord } from '../schema/index.ts'
import { CallScope } from './_call-scope.ts'
import type { CallPlan, CallPlanner } from './_call-planner.ts'
import type { Attempt } from './_prepared-tool.ts'
import { toolCalls, type ToolCallEvent } from './tool-calls.ts'
import type { WrittenCall } from './written-call.ts'

export interface ToolResult {
  readonly message: ToolMessage
  readonly record: ToolRecord
}

export interface ToolCallOptions<Context extends object> {
  /** Shared by all calls of a rollout. A tool sees it with the `signal` of its own call in place of the rollout's. */
  readonly context: Context
  readonly signal: AbortSignal
  /**
   * Returns the journal's answer to a call, when a rollout is resumed. Asked for every call except those to tools with `resume:
   * 'rerun'`; the tool runs if it returns undefined.
   */
  readonly recall?: (call: ToolCall, index: number) => ToolResult | undefined
  /** The trace of the calls, for listeners to tool calls; see `RolloutStartEvent`. */
  readonly trace?: object
}

/** Generous: a tool that takes longer should set its own `timeoutMs`. */
const defaultTimeoutMs = 120_000

/** How many calls of one reply are made. A model that writes more has lost its way. */
const maxCalls = 128
const tooMany = {
  tool: undefined,
  refusal: { status: 'failed', content: `Error: not called, since at most ${maxCalls} calls of one reply are made.` },
} as const

interface BegunCall {
  readonly index: number
  readonly scope: CallScope<object>
  readonly startedAt: number
}

interface RunningCall extends BegunCall {
  readonly timer: NodeJS.Timeout
}

/** The plan of a call that is made. */
type MadePlan<Context extends object> = Extract<CallPlan<Context>, { readonly tool: object }>

/**
 * The tool calls of one model turn. Calls start in order; one to an exclusive tool waits for those before it and holds back those
 * after it. While all tools answer synchronously nothing is awaited: timers, listeners and promises are made for the first call
 * that runs on. A tool that neither answers nor heeds its signal is left behind, and a later answer is dropped.
 */
export class ToolTurn<Context extends object> implements AbortListener {
  readonly #planner: CallPlanner<Context>
  readonly #calls: readonly WrittenCall[]
  readonly #options: ToolCallOptions<Context>
  readonly #results: ToolResult[]
  readonly #running = new ArraySet<RunningCall>()
  #next = 0
  /** The plan of the next call, while it waits. */
  #plan: CallPlan<Context> | undefined
  #exclusiveRuns = false
  #end: PromiseWithResolvers<ToolResult[]> | undefined

  constructor(planner: CallPlanner<Context>, calls: readonly WrittenCall[], options: ToolCallOptions<Context>) {
    this.#planner = planner
    this.#calls = calls
    this.#options = options
    // At its final length: results come in any order, and an array with holes grows slowly.
    this.#results = Array.from<ToolResult>({ length: calls.length })
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
      this.#plan ??= this.#next < maxCalls ? this.#planner.plan(call) : tooMany
      const plan = this.#plan
      const isExclusive = plan.tool?.tool.exclusive === true
      if (this.#running.size > 0 && (isExclusive || this.#exclusiveRuns)) return
      this.#plan = undefined
      this.#start(call, this.#next, plan)
      this.#exclusiveRuns = isExclusive && this.#running.size > 0
    }
  }

  #start(call: WrittenCall, index: number, plan: CallPlan<Context>): void {
    const { recall } = this.#options
    const recorded = plan.tool?.tool.resume === 'rerun' ? undefined : recall?.(call, index)
    if (recorded) this.#results[index] = recorded
    else if (plan.tool) this.#run(call, index, plan)
    else this.#settle(index, performance.now(), plan.refusal)
  }

  #run(call: WrittenCall, index: number, plan: MadePlan<Context>): void {
    const { context, signal } = this.#options
    const startedAt = performance.now()
    const scope = new CallScope<Context>(call)
    let attempt: Attempt | Promise<Attempt>
    try {
      attempt = this.#planner.run(plan, call, new Proxy(context, scope))
    } catch (error) {
      scope.end()
      this.#publish(index, 'ended_attempt', startedAt)
      throw error
    }
    if (attempt instanceof Promise) {
      this.#await(attempt, plan, { index, scope, startedAt })
      signal.throwIfAborted()
      return
    }
    scope.end()
    // A tool may itself have ended the rollout.
    signal.throwIfAborted()
    this.#settle(index, startedAt, attempt, scope.reported)
  }

  #await(attempt: Promise<Attempt>, { tool: { name, tool }, repairs = [] }: MadePlan<Context>, begun: BegunCall): void {
    const { index, scope, startedAt } = begun
    const timeoutMs = timerMs(tool.timeoutMs ?? defaultTimeoutMs)
    const onTimeout = (): void => {
      const after = `${name} took longer than ${timeoutMs / 1_000} s and was stopped`
      this.#running.delete(running)
      scope.abort(new MillraceError('tool_timeout', after))
      this.#settle(index, startedAt, { status: 'timeout', content: `Error: ${after}`, repairs }, scope.reported)
      this.#goOn()
    }
    const running = { ...begun, timer: setTimeout(onTimeout, timeoutMs) }
    this.#running.add(running)
    attempt.then(
      (settled) => {
        if (!this.#takeOut(running)) return
        this.#settle(index, startedAt, settled, scope.reported)
        this.#goOn()
      },
      (error: unknown) => {
        if (!this.#takeOut(running)) return
        this.#publish(index, 'ended_attempt', startedAt)
        this.#fail(error)
      },
    )
  }

  /** Takes a call out of the running ones; false if it timed out or the turn was stopped in the meantime. */
  #takeOut(running: RunningCall): boolean {
    clearTimeout(running.timer)
    if (!this.#running.delete(running)) return false
    running.scope.end()
    return true
  }

  #settle(index: number, startedAt: number, attempt: Attempt, reports?: ToolReports): void {
    const { status, content } = attempt
    const call = this.#calls[index]
    if (!call) return
    const ms = Math.round((performance.now() - startedAt) * 1_000) / 1_000
    const bare = { name: call.function.name, status, ms }
    const record = isPlain(attempt) ? bare : withMore(bare, attempt)
    this.#results[index] = {
      message: { role: 'tool', tool_call_id: call.id, content },
      record: reports ? { ...record, reports } : record,
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
    for (const running of this.#running) {
      const { index, scope, timer, startedAt } = running
      this.#running.delete(running)
      clearTimeout(timer)
      this.#publish(index, 'stopped', startedAt)
      scope.abort(reason)
    }
  }
}

function isPlain({ threw, repairs, detail }: Attempt): boolean {
  return !threw && !repairs?.length && !detail
}

function withMore(record: ToolRecord, { threw, repairs, detail }: Attempt): ToolRecord {
  return { ...record, ...(threw && { threw }), ...(repairs?.length && { repairs }), ...(detail && { detail }) }
}
