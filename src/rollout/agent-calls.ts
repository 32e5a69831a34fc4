import type { AgentTools } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import type { Session, ToolAnswers } from '../inference/index.ts'
import type { Message, MessageNode } from '../schema/index.ts'
import { shortenResults, type ToolCallOptions, type ToolResult, type WrittenCall } from '../tools/index.ts'
import { afterTheEnd, type BudgetMeter } from './budget-meter.ts'
import { childPlace } from './child-id.ts'
import type { RunServices } from './run-services.ts'
import { keptChildEvent, keptUnder } from './kept-children.ts'
import type { LiveContext } from './live-context.ts'
import { requireSameTool, withRepairs } from './replay-cassette.ts'
import type { LiveRollout } from './live-rollout.ts'
import type { Tally } from './tally.ts'
import type { RolloutTools } from './toolkit.ts'

/**
 * How each answer to tool calls came to be, looked up when the agent appends the answer; an agent may also append tool messages
 * of its own making, which are not in here. All rollouts share this map: one per rollout would cost more than its entries.
 */
const toolAnswers = new WeakMap<Message, ToolAnswers>()

export function toolAnswersIn(message: Message): ToolAnswers | undefined {
  return toolAnswers.get(message)
}

/** The agent that makes the calls. */
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
  readonly isRepeatingJournal: boolean
  record(name: string, data: object): void
}

/** Calls that were made together. */
interface CallsAtWork {
  readonly calls: readonly WrittenCall[]
  readonly startedAt: number
  /** How long the rollout had waited by then. */
  readonly waitedMs: number
  answers?: Promise<readonly Message[]>
}

/** The tool calls of one agent: made, or answered from what is recorded of them. */
export class AgentCalls implements AgentTools {
  readonly definitions: AgentTools['definitions']
  readonly #host: CallsHost
  readonly #toolBox: RolloutTools['box']
  /** The tool calls in the model's last reply. */
  #inReply: readonly WrittenCall[] = []
  /** The batches of calls that have not all answered; an agent may make several batches at once. */
  #atWork: readonly CallsAtWork[] = []

  constructor(host: CallsHost, toolBox: RolloutTools['box']) {
    this.#host = host
    this.#toolBox = toolBox
    this.definitions = toolBox.definitions
  }

  noteReply(calls: readonly WrittenCall[]): void {
    this.#inReply = calls
  }

  readonly call: AgentTools['call'] = (calls) => {
    const { liveRollout, budget } = this.#host
    // After the end, the state that tools work on may be torn down.
    if (budget.isStopped) return Promise.reject(afterTheEnd())
    const { outputs } = liveRollout
    const atWork: CallsAtWork = { calls, startedAt: performance.now(), waitedMs: budget.waitedMs }
    this.#atWork = [...this.#atWork, atWork]
    const { cutOff } = this.#host.session
    const made = cutOff ? this.#cutOffAgain(calls, cutOff) : this.#toolBox.call(calls, this.#optionsFor(calls))
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

  /** The answers that are still to come. */
  get underWay(): readonly Promise<unknown>[] {
    return this.#atWork.flatMap(({ answers }) => answers ?? [])
  }

  /** The agent has ended, and with it the time of the calls that are under way. */
  cutOff(): void {
    for (const atWork of this.#atWork) this.#end(atWork)
  }

  #optionsFor(calls: readonly WrittenCall[]): ToolCallOptions<LiveContext> {
    const { session, context, trace, signal } = this.#host
    const isRecalling = session.isRecalling || this.#isClosed
    if (!trace && !isRecalling) return { context, signal }
    const recall = (_call: WrittenCall, index: number): ToolResult | undefined => this.#recall(calls, index)
    return { context, signal, ...(trace && { trace }), ...(isRecalling && { recall }) }
  }

  /**
   * The recording ends during these calls. The calls that may be rerun are made again for what they do to the state; their
   * answers are dropped, and the recorded error is thrown.
   */
  async #cutOffAgain(calls: readonly WrittenCall[], end: MillraceError): Promise<never> {
    const { context, trace, signal } = this.#host
    const isMadeAgain = (call: WrittenCall): boolean => this.#toolBox.resumeRule(call) === 'rerun'
    for (const call of calls) if (!isMadeAgain(call)) this.#keepChildren(call)
    await this.#toolBox.call(calls.filter(isMadeAgain), { context, signal, ...(trace && { trace }) })
    throw end
  }

  #answersTo(atWork: CallsAtWork, results: readonly ToolResult[]): readonly Message[] {
    const { services, tally, context } = this.#host
    const { calls } = atWork
    this.#end(atWork)
    tally.addToolCalls(results)
    // Reports are counted in the order of the calls, not of the answers, so that a repetition from the journal has the same
    // order.
    for (const { record } of results) if (record.reports) context.reportAgain(record.reports)
    return services.callStyle.answer(calls, results).map(({ message, answers }) => {
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

  /** The place at which a child begins that a call, or the agent itself, asks for. */
  placeOf(call: WrittenCall | undefined): string {
    return childPlace(this.#host.turns, call && this.#inReply.findIndex(({ id }) => id === call.id))
  }

  /** Whether this is a replay with a recorded end: calls are answered from the recording alone. */
  get #isClosed(): boolean {
    return this.#host.liveRollout.job.cassette?.end !== undefined
  }

  /** The recorded result of a call; undefined if the call is to be made. What its children had used then is counted as used. */
  #recall(calls: readonly WrittenCall[], index: number): ToolResult | undefined {
    const { services, session } = this.#host
    const call = calls[index]
    if (!call) return undefined
    const recorded = (offset: number): MessageNode | undefined => session.recall(offset)
    const recalled = requireSameTool(call, services.callStyle.recall(recorded, index))
    if (!recalled && this.#isClosed) {
      const message = `tool ${call.function.name} is called, and the recording has no answer of it`
      throw new MillraceError('replay_diverged', message)
    }
    if (recalled) this.#keepChildren(call)
    return recalled && this.#isClosed ? withRepairs(recalled, this.#toolBox.planned(call).repairs) : recalled
  }

  #keepChildren(call: WrittenCall): void {
    const { id, liveRollout, tally, turns, budget, isRepeatingJournal } = this.#host
    for (const [child, figures] of keptUnder(liveRollout.job, id, this.placeOf(call))) {
      const counted = (liveRollout.countedChildren ??= new Set())
      if (counted.has(child)) continue
      counted.add(child)
      tally.addKeptChild(figures)
      budget.takeOver(figures, turns)
      if (!isRepeatingJournal) this.#host.record(keptChildEvent, { child, ...figures })
    }
  }
}
