import { messageJson } from '../../apis/index.ts'
import type { AgentTools } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import type { Session, ToolAnswers } from '../../inference/index.ts'
import {
  type AssistantMessage,
  type ContentPart,
  type Message,
  type MessageNode,
  textOf,
  type TextToolRecord,
  type ToolDefinition,
  type ToolMessage,
  type ToolRepair,
} from '../../schema/index.ts'
import { AttemptRecorder } from '../../store/index.ts'
import { readOutputToolName, shortenResults, type ToolCallOptions, type ToolResult } from '../../tools/index.ts'
import type { LiveRollout, RunServices } from '../environment/live-rollout.ts'
import type { RolloutTools } from '../environment/toolkit.ts'
import { childrenAt } from '../recording/recording.ts'
import type { RolloutJob, RunSettings } from '../schedule/executor.ts'
import { attemptStart } from '../schedule/journal-entries.ts'
import { agentEndedError, type BudgetMeter, type Tally } from './budget.ts'
import type { LiveContext } from './live-context.ts'
import { toolFormatOf, type ParsedToolCall, type ToolFormat, type ToolFormatName } from '../../tool-formats/index.ts'

/** How each answer to tool calls came to be. Tool messages of the agent's own making are not in here. */
export const toolAnswers = new WeakMap<Message, ToolAnswers>()

/** The event by which a replay says that a child did not run again. */
export const recalledChildEvent = 'child-recalled'

export interface CallsHost {
  readonly id: string
  readonly services: RunServices
  readonly liveRollout: LiveRollout
  readonly session: Session
  readonly budget: BudgetMeter
  readonly tally: Tally
  readonly context: LiveContext
  readonly trace: object | undefined
  readonly signal: AbortSignal
  readonly turns: number
  record(name: string, data: object): void
}

interface CallsAtWork {
  readonly calls: readonly ParsedToolCall[]
  readonly startedAt: number
  readonly waitedMs: number
  answers?: Promise<readonly Message[]>
}

/** The tool calls of one agent: made, or answered from what is recorded of them. */
export class AgentCalls implements AgentTools {
  readonly definitions: AgentTools['definitions']
  readonly style: CallStyle
  readonly #host: CallsHost
  readonly #toolBox: RolloutTools['box']
  #inReply: readonly ParsedToolCall[] = []
  /** The batches of calls that have not all answered; an agent may make several batches at once. */
  #atWork: readonly CallsAtWork[] = []

  constructor(host: CallsHost, toolBox: RolloutTools['box']) {
    this.#host = host
    this.#toolBox = toolBox
    this.definitions = toolBox.definitions
    this.style = callStyleOf(host.services.settings)
  }

  /** What the model is told of the tools of a turn. Refuses, with `agent_failed`, those that it would not hear of. */
  declared(asked: readonly ToolDefinition[] = this.definitions): readonly ToolDefinition[] {
    if (this.style !== nativeCalls && asked.some(({ function: { name } }) => !this.#isDescribed(name))) throw ownTools()
    return this.style.declared(asked)
  }

  #isDescribed(name: string): boolean {
    return this.definitions.some((each) => each.function.name === name)
  }

  noteReply(calls: readonly ParsedToolCall[]): void {
    this.#inReply = calls
  }

  /** Calls that the agent appended as an assistant message of its own. */
  noteOwn(calls: readonly ParsedToolCall[]): void {
    this.#inReply = [...this.#inReply, ...calls]
  }

  readonly call: AgentTools['call'] = (calls) => this.make(calls, this.#toolBox)

  readonly hasFailed: AgentTools['hasFailed'] = hasFailed

  readonly with: AgentTools['with'] = (tools) => new ToolView(this, this.#toolBox).with(tools)

  readonly only: AgentTools['only'] = (names) => new ToolView(this, this.#toolBox).only(names)

  /** Makes the calls with the tools of `box`. */
  make(calls: readonly ParsedToolCall[], box: RolloutTools['box']): Promise<readonly Message[]> {
    const { liveRollout, budget } = this.#host
    // After the end, the state that tools work on may be torn down.
    if (budget.isStopped) return Promise.reject(agentEndedError())
    const { outputs } = liveRollout
    const atWork: CallsAtWork = { calls, startedAt: performance.now(), waitedMs: budget.waitedMs }
    this.#atWork = [...this.#atWork, atWork]
    const { cutOff } = this.#host.session
    const made = cutOff ? this.#cutOffAgain(calls, box, cutOff) : box.call(calls, this.#optionsFor(calls, box))
    const shown = outputs ? made.then((results) => shortenResults(results, outputs)) : made
    atWork.answers = shown.then(
      (results) => this.#answersTo(atWork, results),
      (thrown: unknown) => {
        this.#end(atWork)
        throw thrown
      },
    )
    return atWork.answers
  }

  get underWay(): readonly Promise<unknown>[] {
    return this.#atWork.flatMap(({ answers }) => answers ?? [])
  }

  cutOff(): void {
    for (const atWork of this.#atWork) this.#end(atWork)
  }

  /** `box` with tools of the agent's own. Refuses, with `agent_failed`, where nothing would tell the model of them. */
  extended(box: RolloutTools['box'], tools: Parameters<AgentTools['with']>[0]): RolloutTools['box'] {
    if (this.style === nativeCalls) return box.with(tools)
    throw ownTools()
  }

  /** Only the named tools of `box`. An agent that may call tools whose long outputs are kept must be able to read those. */
  picked(box: RolloutTools['box'], names: readonly string[]): RolloutTools['box'] {
    return pickedTools(box, names, this.#host.liveRollout)
  }

  #optionsFor(calls: readonly ParsedToolCall[], box: RolloutTools['box']): ToolCallOptions<LiveContext> {
    const { session, context, trace, signal } = this.#host
    const isRecalling = session.isRecalling || this.#isClosed
    if (!trace && !isRecalling) return { context, signal }
    const recall = (_call: ParsedToolCall, index: number): ToolResult | undefined => this.#recall(calls, box, index)
    return { context, signal, ...(trace && { trace }), ...(isRecalling && { recall }) }
  }

  /** The recording ends during these calls: those that may be rerun are, for what they do to the state. */
  async #cutOffAgain(calls: readonly ParsedToolCall[], box: RolloutTools['box'], end: MillraceError): Promise<never> {
    const { context, trace, signal } = this.#host
    const isMadeAgain = (call: ParsedToolCall): boolean => box.resumeRule(call) === 'rerun'
    for (const call of calls) if (!isMadeAgain(call)) this.recallChildren(this.childIdPart(call))
    await box.call(calls.filter(isMadeAgain), { context, signal, ...(trace && { trace }) })
    throw end
  }

  #answersTo(atWork: CallsAtWork, results: readonly ToolResult[]): readonly Message[] {
    const { tally, context } = this.#host
    this.#end(atWork)
    tally.addToolCalls(results)
    // In the order of the calls, not of the answers, so that a repetition from the journal has the same order.
    for (const { record } of results) if (record.reports) context.report(record.reports)
    return this.style.answer(atWork.calls, results).map(({ message, answers }) => {
      toolAnswers.set(message, answers)
      return message
    })
  }

  /** Counts the time of these calls once: with their answers, or when they are cut off. */
  #end(atWork: CallsAtWork): void {
    if (!this.#atWork.includes(atWork)) return
    this.#atWork = this.#atWork.filter((each) => each !== atWork)
    // A wait for a tool server that is away is counted as such.
    const waitedMs = this.#host.budget.waitedMs - atWork.waitedMs
    this.#host.tally.addToolTime(Math.max(0, performance.now() - atWork.startedAt - waitedMs))
  }

  /** The tools that were called and have not all answered; undefined while none is at work. */
  get doing(): string | undefined {
    if (this.#atWork.length === 0) return undefined
    const names = new Set(this.#atWork.flatMap(({ calls }) => calls.map((call) => call.function.name)))
    return `${names.size === 1 ? 'tool' : 'tools'} ${[...names].join(', ')}`
  }

  /** Part of a child's id: children of a later call must not be taken for those of one that is not made again. */
  childIdPart(call: ParsedToolCall | undefined): string {
    const turn = `t${this.#host.turns}`
    if (!call) return turn
    const index = this.#inReply.findIndex(({ id }) => id === call.id)
    // A call that stands in no assistant message has no number.
    return index === -1 ? `${turn}c` : `${turn}c${index}`
  }

  /** Whether this is a replay: calls are answered from the recording alone. */
  get #isClosed(): boolean {
    return this.#host.liveRollout.job.recording?.purpose === 'replay'
  }

  /** The recorded result of a call; undefined if the call is to be made. Its children count as they had. */
  #recall(calls: readonly ParsedToolCall[], box: RolloutTools['box'], index: number): ToolResult | undefined {
    const call = calls[index]
    if (!call) return undefined
    const { name } = call.function
    const recalled = this.style.recall((offset) => this.#host.session.recall(offset), index)
    if (!recalled) {
      if (!this.#isClosed) return undefined
      throw new MillraceError('replay_diverged', `the recording has no answer for the call of tool ${name}`)
    }
    // Answers are found by place, which may be another tool's.
    if (recalled.record.name !== name) {
      throw new MillraceError(
        'replay_diverged',
        `tool ${name} is called where the recording has tool ${recalled.record.name}`,
      )
    }
    this.recallChildren(this.childIdPart(call))
    return this.#isClosed ? withRepairs(recalled, box.planned(call).repairs) : recalled
  }

  /** Counts the children that were asked for in a place that is not come to again. A fork gets a copy of them in its own journal. */
  recallChildren(idPart: string): void {
    const { id, liveRollout, tally, budget, services } = this.#host
    const { job } = liveRollout
    const isBounded = services.settings.maxVersionsBehind !== undefined
    for (const [child, { nodes, journalled }] of childrenAt(job, id, idPart)) {
      const recalled = (liveRollout.recalledChildren ??= new Set())
      if (recalled.has(child)) continue
      recalled.add(child)
      tally.addRecalledChild(nodes)
      for (const { call: sample, tokens } of nodes) {
        if (!sample) continue
        budget.chargeRecalled(sample)
        if (tokens && isBounded) liveRollout.sampled.noteAll(services.model(sample.model).versions, tokens)
      }
      if (this.#isClosed) this.#host.record(recalledChildEvent, { child })
      else if (journalled === undefined) this.#copyChild(job.id + child, nodes)
    }
  }

  #copyChild(id: string, nodes: readonly MessageNode[]): void {
    const { services, liveRollout } = this.#host
    const { job } = liveRollout
    const parent = id.slice(0, id.lastIndexOf('.'))
    services.journal.append(attemptStart({ ...job, id }, nodes[0]?.at ?? Date.now(), parent))
    const recorder = new AttemptRecorder(services.journal, id, job.attempt)
    for (const node of nodes) recorder.node(node, messageJson(node.message))
  }
}

function ownTools(): MillraceError {
  const message = `tools of an agent's own are declared as the APIs have it: leave out the tool format`
  return new MillraceError('agent_failed', message)
}

/** Some of an agent's tools, or these and others. */
class ToolView implements AgentTools {
  readonly #calls: AgentCalls
  readonly #box: RolloutTools['box']

  constructor(calls: AgentCalls, box: RolloutTools['box']) {
    this.#calls = calls
    this.#box = box
  }

  get definitions(): readonly ToolDefinition[] {
    return this.#box.definitions
  }

  readonly call: AgentTools['call'] = (calls) => this.#calls.make(calls, this.#box)

  readonly hasFailed: AgentTools['hasFailed'] = hasFailed

  readonly with: AgentTools['with'] = (tools) => new ToolView(this.#calls, this.#calls.extended(this.#box, tools))

  readonly only: AgentTools['only'] = (names) => new ToolView(this.#calls, this.#calls.picked(this.#box, names))
}

function hasFailed(answer: Message): boolean {
  const { tool, tools = tool ? [tool] : [] } = toolAnswers.get(answer) ?? {}
  return tools.some(({ status }) => status !== 'ok')
}

export function pickedTools(
  box: RolloutTools['box'],
  names: readonly string[],
  { outputs }: Pick<LiveRollout, 'outputs'>,
): RolloutTools['box'] {
  const needsReader = outputs && names.length > 0 && !names.includes(readOutputToolName)
  return box.pick(needsReader ? [...names, readOutputToolName] : names)
}

/** A recalled answer with the repairs that its call needs now: a replay compares them with the recorded ones. */
function withRepairs({ message, record }: ToolResult, planned: readonly ToolRepair[]): ToolResult {
  const { repairs: recorded = [], ...bare } = record
  // Whether a call is made twice depends on its first answer, which is not recorded.
  const repairs = [...planned, ...recorded.filter(({ rule }) => rule === 'retry_without')]
  return { message, record: repairs.length > 0 ? { ...bare, repairs } : bare }
}

/** How a model is told of its tools, how it calls them and how it gets their results. */
export interface CallStyle {
  opening(prompt: readonly Message[], tools: RolloutTools['box']): readonly Message[]
  declared(definitions: readonly ToolDefinition[]): readonly ToolDefinition[]
  callsIn(reply: AssistantMessage, turn: number): readonly ParsedToolCall[]
  answer(
    calls: readonly ParsedToolCall[],
    results: readonly ToolResult[],
  ): readonly { readonly message: Message; readonly answers: ToolAnswers }[]
  /** The recorded result of the call at `index` of a turn, in a form that `answer` makes the same message of. */
  recall(recorded: (offset: number) => MessageNode | undefined, index: number): ToolResult | undefined
}

export function callStyleOf({ toolFormat }: { readonly toolFormat?: ToolFormatName }): CallStyle {
  return toolFormat ? textCalls(toolFormatOf(toolFormat)) : nativeCalls
}

/** Calls as the APIs have them: declared in the request, answered with a tool message each. */
const nativeCalls: CallStyle = {
  opening: (prompt) => prompt,
  declared: (definitions) => definitions,
  callsIn: ({ tool_calls: calls }) => calls ?? [],
  answer: (_calls, results) => results.map(({ message, record }) => ({ message, answers: { tool: record } })),
  recall: (recorded, index) => {
    const node = recorded(index)
    if (node?.message.role !== 'tool' || !node.tool) return undefined
    return { message: node.message, record: node.tool }
  },
}

/** The recorded parts of results that an earlier launch put into words: they are used as they are. */
const worded = new WeakMap<ToolMessage, readonly ContentPart[]>()

/** Calls as a model writes them into its text. Results go back as one user message: most templates forbid two. */
function textCalls(format: ToolFormat): CallStyle {
  return {
    opening: (prompt, tools) => {
      const described = tools.described()
      return described.length === 0 ? prompt : withSystemText(prompt, format.describe(described))
    },
    declared: () => [],
    callsIn: ({ content }, turn) => (content === null ? [] : format.parse(content, `call_${turn}`)),
    answer: (calls, results) => {
      const parts = results.map((result, index) => partsOf(format, calls[index], result))
      const tools = results.map(({ record }, index): TextToolRecord => ({
        ...record,
        parts: parts[index]?.length ?? 0,
      }))
      const all = parts.flat()
      const [only] = all
      const content = all.length === 1 && only?.type === 'text' ? only.text : all
      return [{ message: { role: 'user', content }, answers: { tools } }]
    },
    recall: (recorded, index) => {
      const node = recorded(0)
      const record = node?.tools?.[index]
      if (!node?.tools || !record) return undefined
      const { content } = node.message
      const all: readonly ContentPart[] =
        typeof content === 'string' ? [{ type: 'text', text: content }] : (content ?? [])
      const from = node.tools.slice(0, index).reduce((sum, { parts }) => sum + parts, 0)
      const message: ToolMessage = { role: 'tool', tool_call_id: '', content: '' }
      worded.set(message, all.slice(from, from + record.parts))
      const { parts: _parts, ...bare } = record
      return { message, record: bare }
    },
  }
}

function partsOf(
  format: ToolFormat,
  call: ParsedToolCall | undefined,
  { message, record }: ToolResult,
): readonly ContentPart[] {
  const recorded = worded.get(message)
  if (recorded || !call) return recorded ?? []
  const { content } = message
  const text = textOf(message)
  const images = typeof content === 'string' ? [] : content.filter((part) => part.type !== 'text')
  return [{ type: 'text', text: format.result(call, text, record.status !== 'ok') }, ...images]
}

function withSystemText(prompt: readonly Message[], text: string): readonly Message[] {
  const [first, ...rest] = prompt
  if (first?.role !== 'system') return [{ role: 'system', content: text }, ...prompt]
  // A child may start from the conversation of its parent.
  if (textOf(first).includes(text)) return prompt
  const content =
    typeof first.content === 'string'
      ? `${first.content}\n\n${text}`
      : [...first.content, { type: 'text' as const, text: `\n\n${text}` }]
  return [{ ...first, content }, ...rest]
}

export function* callsIn(nodes: readonly MessageNode[], style: CallStyle): Generator<ParsedToolCall, void, void> {
  let turn = 0
  for (const { message } of nodes) {
    if (message.role !== 'assistant') continue
    yield* style.callsIn(message, turn)
    turn += 1
  }
}

/** Why a rollout cannot go on where it was cut off; undefined if it can. */
export function whyNotResumable(
  { recording }: RolloutJob,
  tools: RolloutTools['box'],
  settings: RunSettings,
): string | undefined {
  if (recording?.purpose !== 'resume') return undefined
  const journalled = Object.values(recording.sessions).map(({ nodes, journalled: count = 0 }) => nodes.slice(0, count))
  const call = unresumableCall(journalled, tools, callStyleOf(settings))
  return call && `its tool ${call.function.name} does not declare how to resume its calls`
}

/** The first call in these conversations that can be neither made again nor answered from the journal. */
export function unresumableCall(
  conversations: Iterable<readonly MessageNode[]>,
  tools: RolloutTools['box'],
  style: CallStyle,
): ParsedToolCall | undefined {
  for (const nodes of conversations) {
    for (const call of callsIn(nodes, style)) if (tools.resumeRule(call) === 'restart') return call
  }
  return undefined
}
