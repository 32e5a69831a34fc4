import { MillraceError } from '../errors/index.ts'
import {
  AbortSource,
  EventChannel,
  lostNumber,
  nearestNames,
  offAbort,
  onAbort,
  timerMs,
  withAbort,
} from '../kit/index.ts'
import {
  describeIssues,
  isJsonObject,
  type JsonObject,
  type ToolCall,
  type ToolMessage,
  type ToolRecord,
  type ToolRepair,
  type ToolReports,
  type ToolStatus,
} from '../schema/index.ts'
import type { Tool, ToolResult } from './tool.ts'
import type { ParsedToolCall } from '../tool-formats/index.ts'

export interface QualifiedToolName {
  readonly server?: string | undefined
  readonly tool: string
}

export function nameIn({ server, function: { name } }: ParsedToolCall): QualifiedToolName {
  return server === undefined ? { tool: name } : { server, tool: name }
}

export interface NamedTool {
  /** The name in native calls: unique among all tools. */
  readonly name: string
  /** The server that the tool is on and its name there; undefined for the environment's own tools. */
  readonly server?: string | undefined
  readonly serverToolName?: string | undefined
}

/** How many tools are listed when the model asks for one that does not exist. */
const maxListed = 50
/** How much of a name that the model made up is shown. */
const maxNameChars = 100

/** The tools that can be called, by all their names. No other tool is ever found, routed to or hinted at. */
export class ToolNames<Named extends NamedTool> {
  readonly #tools: readonly Named[]
  /** By name; tools of servers also by server and their name there. */
  readonly #byName = new Map<string, Named>()
  /** All tools by each of their names, native and on the server. */
  readonly #owners = new Map<string, Named[]>()

  constructor(tools: readonly Named[]) {
    this.#tools = tools
    for (const tool of tools) {
      const { name, server, serverToolName = name } = tool
      this.#byName.set(keyOf({ tool: name }), tool)
      if (server !== undefined) this.#byName.set(keyOf({ server, tool: serverToolName }), tool)
      for (const each of new Set([name, serverToolName])) this.#owners.set(each, [...this.owners(each), tool])
    }
  }

  find(written: QualifiedToolName): Named | undefined {
    return this.#byName.get(keyOf(written))
  }

  owners(tool: string): readonly Named[] {
    return this.#owners.get(tool) ?? []
  }

  ambiguous({ server, tool }: QualifiedToolName, owners: readonly Named[]): string {
    const where = server === undefined ? 'there is no tool' : `server ${quoted(server)} has no tool`
    return `Error: ${where} named ${quoted(tool)}, but several are called so: ${listed(owners, server)}. Call one of these.`
  }

  unknown({ server, tool }: QualifiedToolName): string {
    const where = server === undefined ? '' : ` on server ${quoted(server)}`
    const start = `Error: there is no tool named ${quoted(tool)}${where}`
    if (this.#tools.length === 0) return `${start}; there are no tools at all.`
    const near = nearestNames(tool.slice(0, maxNameChars), this.#owners.keys()).flatMap((name) => this.owners(name))
    const suggested = [...new Set(near)].slice(0, 3).map((found) => label(found, server))
    const suggestion = suggested.length > 0 ? ` Did you mean ${suggested.join(' or ')}?` : ''
    return `${start}.${suggestion} Tools: ${listed(this.#tools, server)}.`
  }
}

function keyOf({ server, tool }: QualifiedToolName): string {
  return server === undefined ? tool : JSON.stringify([server, tool])
}

function listed(tools: readonly NamedTool[], server: string | undefined): string {
  const more = tools.length > maxListed ? ` and ${tools.length - maxListed} more` : ''
  const labels = tools.slice(0, maxListed).map((tool) => label(tool, server))
  return `${labels.join(', ')}${more}`
}

/** A tool in the words in which the model has to call it: with its server, if the call named one. */
function label({ name, server, serverToolName = name }: NamedTool, namedServer: string | undefined): string {
  return namedServer !== undefined && server !== undefined ? `${serverToolName} (server ${quoted(server)})` : name
}

function quoted(name: string): string {
  return `"${name.slice(0, maxNameChars)}"`
}

export type ReadArguments =
  | {
      readonly value: JsonObject
      readonly problem?: undefined
      /** The JSON that was read; it differs from the model's text if that had to be repaired. */
      readonly json: string
      readonly isRepaired: boolean
    }
  /** Words to follow "bad arguments for …:". */
  | { readonly value?: undefined; readonly problem: string }

/** The arguments of a call. An empty text counts as `{}`: some models send that to a tool without parameters. */
export function readArguments(text: string): ReadArguments {
  if (text.trim() === '') return { value: {}, json: '{}', isRepaired: false }
  try {
    const value: unknown = JSON.parse(text)
    return isJsonObject(value) ? withoutLoss(value, text, false) : { problem: notAnObject(value) }
  } catch (error) {
    return { problem: `not valid JSON (${MillraceError.from(error, 'internal').rawMessage})` }
  }
}

const maxShownChars = 60

/** Refuses a number that would reach the tool as another one, such as an id of 19 digits: nobody would know. */
export function withoutLoss(value: JsonObject, json: string, isRepaired: boolean): ReadArguments {
  const lost = lostNumber(json, value)
  if (!lost) return { value, json, isRepaired }
  const { path, source } = lost
  const shown = source.length > maxShownChars ? `${source.slice(0, maxShownChars)}…` : source
  const message = `the number ${shown} cannot be passed on exactly; send it as a string if the tool takes one, or a smaller number`
  return { problem: describeIssues([{ path, message }]) }
}

function notAnObject(value: unknown): string {
  const kind = Array.isArray(value) ? 'a list' : value === null ? 'null' : `a ${typeof value}`
  return `they are ${kind}, and must be one JSON object with a name for each argument`
}

/** The plan for one call: the tool to run, or what the model is told instead. */
export type CallPlan<Context extends object> = { readonly repairs: readonly ToolRepair[] } & (
  | {
      readonly name: string
      readonly tool: Tool<Context>
      /** Rejects only with errors that end the attempt. Repairs that it made while it ran stand in the outcome. */
      run(context: Context): Promise<ToolOutcome>
    }
  | { readonly name?: undefined; readonly tool?: undefined; readonly refusal: ToolOutcome }
)

/** The result of one call, before it is put into a message. */
export interface ToolOutcome extends Pick<ToolRecord, 'status' | 'threw' | 'repairs' | 'detail'> {
  readonly content: ToolMessage['content']
}

export interface ToolCallOptions<Context extends object> {
  /** Shared by all calls of a rollout. A tool sees it with the `signal` of its own call in place of the rollout's. */
  readonly context: Context
  readonly signal: AbortSignal
  /** The journal's answer to a call of a resumed rollout; not asked about tools with `resume: 'rerun'`. */
  readonly recall?: (call: ToolCall, index: number) => ToolResult | undefined
  /** The trace of the calls, for listeners to tool calls; see `RolloutStartEvent`. */
  readonly trace?: object
}

/** Generous: a tool that takes longer should set its own `timeoutMs`. */
const defaultTimeoutMs = 120_000

/** How many calls of one reply are made. A model that writes more has lost its way. */
const maxCalls = 128
const tooMany = {
  repairs: [],
  refusal: { status: 'failed', content: `Error: not called, since at most ${maxCalls} calls of one reply are made.` },
} as const

interface RunningCall {
  readonly call: ParsedToolCall
  readonly scope: CallScope<object>
  readonly startedAt: number
  timer?: NodeJS.Timeout
}

/**
 * The tool calls of one model turn. Calls start in order; one to an exclusive tool waits for those before it and holds back those
 * after it. A tool that neither answers nor heeds its signal is left behind, and a later answer is dropped.
 */
export class ToolTurn<Context extends object> {
  readonly #plan: (call: ParsedToolCall) => CallPlan<Context>
  readonly #calls: readonly ParsedToolCall[]
  readonly #options: ToolCallOptions<Context>
  readonly #running = new Set<RunningCall>()
  /** The first error that ends the attempt: no further call is started. */
  #failure: { readonly error: unknown } | undefined

  constructor(
    plan: (call: ParsedToolCall) => CallPlan<Context>,
    calls: readonly ParsedToolCall[],
    options: ToolCallOptions<Context>,
  ) {
    this.#plan = plan
    this.#calls = calls
    this.#options = options
  }

  async run(): Promise<ToolResult[]> {
    const { signal } = this.#options
    signal.throwIfAborted()
    // Tools hear of the end at once, before the code that awaits this turn goes on.
    const listener = { handleEvent: () => this.#stop(signal.reason) }
    onAbort(signal, listener)
    try {
      return await withAbort(this.#callAll(), signal)
    } catch (error) {
      this.#stop(error)
      throw error
    } finally {
      offAbort(signal, listener)
    }
  }

  async #callAll(): Promise<ToolResult[]> {
    const results: Promise<ToolResult>[] = []
    let isExclusiveLast = false
    for (const [index, call] of this.#calls.entries()) {
      const plan: CallPlan<Context> = index < maxCalls ? this.#plan(call) : tooMany
      const isExclusive = plan.tool?.exclusive === true
      if (isExclusive || isExclusiveLast) await Promise.all(results)
      isExclusiveLast = isExclusive
      results.push(this.#call(call, index, plan))
      if (this.#failure) break
      // A tool may itself have ended the rollout.
      this.#options.signal.throwIfAborted()
    }
    return await Promise.all(results)
  }

  async #call(call: ParsedToolCall, index: number, plan: CallPlan<Context>): Promise<ToolResult> {
    const { recall, context } = this.#options
    const recorded = plan.tool?.resume === 'rerun' ? undefined : recall?.(call, index)
    if (recorded) return recorded
    const scope = new CallScope<Context>(call)
    const running: RunningCall = { call, scope, startedAt: performance.now() }
    if (!plan.tool) return this.#settled(running, { repairs: plan.repairs, ...plan.refusal })
    this.#running.add(running)
    const timeoutMs = timerMs(plan.tool.timeoutMs ?? defaultTimeoutMs)
    const late = Promise.withResolvers<ToolOutcome>()
    running.timer = setTimeout(() => {
      const after = `${call.function.name} took longer than ${timeoutMs / 1_000} s and was stopped`
      scope.abort(new MillraceError('tool_timeout', after))
      late.resolve({ status: 'timeout', content: `Error: ${after}` })
    }, timeoutMs)
    try {
      const outcome = await Promise.race([plan.run(new Proxy(context, scope)), late.promise])
      return this.#settled(running, { repairs: plan.repairs, ...outcome })
    } catch (error) {
      this.#failure ??= { error }
      if (this.#running.has(running)) this.#publish(running, 'ended_attempt')
      throw error
    } finally {
      clearTimeout(running.timer)
      if (this.#running.delete(running)) scope.end()
    }
  }

  #settled(running: RunningCall, { status, content, threw, repairs, detail }: ToolOutcome): ToolResult {
    const { call, scope, startedAt } = running
    const { reported: reports } = scope
    const ms = Math.round((performance.now() - startedAt) * 1_000) / 1_000
    if (!this.#failure) this.#publish(running, status)
    return {
      message: { role: 'tool', tool_call_id: call.id, content },
      record: {
        name: call.function.name,
        status,
        ms,
        ...(threw && { threw }),
        ...(repairs?.length && { repairs }),
        ...(detail && { detail }),
        ...(reports && { reports }),
      },
    }
  }

  #publish({ call, startedAt }: RunningCall, status: ToolCallEvent['status']): void {
    if (!toolCalls.hasSubscribers) return
    const { trace } = this.#options
    const ms = performance.now() - startedAt
    toolCalls.publish({ trace, tool: call.function.name, callId: call.id, status, startedAt, ms })
  }

  #stop(reason: unknown): void {
    this.#failure ??= { error: reason }
    for (const running of this.#running) {
      this.#running.delete(running)
      clearTimeout(running.timer)
      this.#publish(running, 'stopped')
      running.scope.abort(reason)
    }
  }
}

/**
 * The signal of one tool call, made only if the tool asks for it: an AbortController for every call would cost more than most
 * tools do. It is also the handler of the proxy a tool gets as its context, which is the rollout's own in everything but
 * `signal`. A proxy, because a context may be a class with private fields, which an object derived from it could not reach; that
 * is also why getters and methods run on the context itself.
 *
 * The signal aborts when the call times out or its turn is stopped, and never once the call has ended: what a tool has started
 * under it, a process perhaps, may outlive the call. Children and judges that the tool asked may not, so they have another
 * signal.
 */
class CallScope<Context extends object> implements ProxyHandler<Context>, CallingToolCall {
  readonly call: ParsedToolCall
  #own: AbortController | undefined
  #asked: AbortSource | undefined
  #reports: ToolReports | undefined
  #end: 'ended' | { readonly reason: unknown } | undefined

  constructor(call: ParsedToolCall) {
    this.call = call
  }

  get(context: Context, key: string | symbol): unknown {
    if (key === 'signal') return this.#ownSignal()
    const value: unknown = Reflect.get(context, key)
    if (typeof value !== 'function') return value
    // Children and judges end with the call that started them: these functions take a signal as second argument, the call as
    // third.
    if (key === 'child' || key === 'judge')
      return (request: unknown) => value.call(context, request, this.#askedSignal(), this)
    // Metrics and notes are kept with the call, which these functions take as third argument.
    if (key === 'metric' || key === 'note')
      return (name: unknown, said: unknown) => value.call(context, name, said, this)
    return value.bind(context)
  }

  get reports(): ToolReports {
    return (this.#reports ??= {})
  }

  /** A copy of what the call has reported so far; undefined if that is nothing. */
  get reported(): ToolReports | undefined {
    const { metrics, notes } = this.#reports ?? {}
    return metrics || notes
      ? { ...(metrics && { metrics: { ...metrics } }), ...(notes && { notes: { ...notes } }) }
      : undefined
  }

  abort(reason: unknown): void {
    this.#end = { reason }
    this.#own?.abort(reason)
    this.#asked?.abort(reason)
  }

  /** The call has ended: children and judges that it asked are abandoned, as nobody waits for them any more. */
  end(): void {
    this.#end ??= 'ended'
    this.#asked?.abort(hasEnded())
  }

  #ownSignal(): AbortSignal {
    if (!this.#own) {
      this.#own = new AbortController()
      if (typeof this.#end === 'object') this.#own.abort(this.#end.reason)
    }
    return this.#own.signal
  }

  #askedSignal(): AbortSignal {
    if (!this.#asked) {
      this.#asked = new AbortSource()
      if (this.#end) this.#asked.abort(this.#end === 'ended' ? hasEnded() : this.#end.reason)
    }
    return this.#asked.signal
  }
}

function hasEnded(): MillraceError {
  return new MillraceError('cancelled', 'its tool call has ended')
}

/** The tool call on whose behalf something is asked for or reported. */
export interface CallingToolCall {
  readonly call: ParsedToolCall
  /** What the call and the children it asked have reported so far; every report is added to it. */
  readonly reports: ToolReports
}

/** One tool call that ended, as listeners see it. Answers taken from a journal are not reported. */
export interface ToolCallEvent {
  readonly trace: object | undefined
  readonly tool: string
  readonly callId: string
  /** `ended_attempt`: the tool threw an error that ends the attempt. `stopped`: the rollout ended before the call did. */
  readonly status: ToolStatus | 'ended_attempt' | 'stopped'
  /** On the clock of `performance.now()`. */
  readonly startedAt: number
  readonly ms: number
}

export const toolCalls = new EventChannel<ToolCallEvent>('millrace:tool-call')
