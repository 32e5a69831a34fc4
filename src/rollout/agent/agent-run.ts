import { setImmediate as nextTurn } from 'node:timers/promises'
import type {
  Agent,
  AgentContext,
  ChildRequest,
  ChildResult,
  ContextView,
  JudgeRequest,
  Turn,
  TurnOptions,
  Verification,
} from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { Session, type ModelClient, type RecordedSession, type SessionReply } from '../../inference/index.ts'
import { withAbort, type StopClock } from '../../kit/index.ts'
import {
  outcomes,
  textOf,
  type AssistantMessage,
  type Limits,
  type Message,
  type Sampling,
  type ToolReports,
} from '../../schema/index.ts'
import { AttemptRecorder } from '../../store/index.ts'
import type { CallingToolCall } from '../../tools/index.ts'
import type { LiveRollout, RunServices } from '../environment/live-rollout.ts'
import type { RolloutTools } from '../environment/toolkit.ts'
import { recordedSession } from '../recording/recording.ts'
import { agentFault, completed, endedBy, staleError, type AgentEnd } from '../result/outcome.ts'
import { attemptEvent } from '../schedule/journal-entries.ts'
import { AgentCalls, pickedTools, toolAnswers, type CallsHost } from './agent-calls.ts'
import { AgentTime, type BudgetMeter, Tally, type TimeHost } from './budget.ts'
import { checkUpdate } from './checks.ts'
import { ContextCopy, contextEvent } from './context-copy.ts'
import { askJudge, type JudgeAsker } from './judge.ts'
import { LiveContext, PendingRequests, type ContextHost } from './live-context.ts'
import { Verifier, type VerifyHost } from './verifier.ts'

interface AgentRunOptions {
  readonly services: RunServices
  /** The rollout that this agent works on. Children share it with their parent. */
  readonly liveRollout: LiveRollout
  readonly id: string
  readonly model: ModelClient
  readonly limits: Limits
  readonly sampling: Sampling
  readonly toolBox: RolloutTools['box']
  readonly parent?: AgentRun
  /** A child whose parent's budget is not charged. */
  readonly hasOwnBudget?: boolean
  /** For a child: the reports of the tool calls that asked for it, the outermost first. */
  readonly askedBy?: readonly ToolReports[]
  /** Starts a child. Given from outside, because a child is an agent run itself. */
  readonly startChild: (request: ChildRequest, parent: AgentRun, start: ChildStart) => Promise<ChildResult>
  readonly signal: AbortSignal
  readonly trace: object | undefined
}

export interface ChildStart {
  /** See `AgentCalls.childIdPart`. */
  readonly idPart: string
  readonly signal: AbortSignal
  readonly askedBy: readonly ToolReports[]
  /** A reward asks for it while the agent works: it is not the agent's doing, and has the full limits of a rollout. */
  readonly isForReward?: boolean
}

/** One agent at work: its session, its turns, and what it asks of children and judges. Each child has its own. */
export class AgentRun implements AgentContext, ContextHost, CallsHost, TimeHost, VerifyHost {
  readonly id: string
  readonly services: RunServices
  readonly liveRollout: LiveRollout
  readonly session: Session
  readonly time: AgentTime
  readonly tally: Tally
  readonly context: LiveContext
  readonly tools: AgentCalls
  readonly requests = new PendingRequests()
  readonly trace: object | undefined
  turns = 0
  prompt: readonly Message[] = []
  /** Set while the reward runs: the reward's clock, which stands still while a question to a judge waits in a queue. */
  rewardClock: StopClock | undefined
  readonly #options: AgentRunOptions
  readonly #recorded: RecordedSession | undefined
  readonly #contextCopy: ContextCopy | undefined
  /** The turns and verifications that were asked for and are not answered yet; an agent may ask for several at once. */
  readonly #underWay = new Set<Promise<unknown>>()
  #verifier: Verifier | undefined
  readonly #kept: Promise<AsyncDisposable>[] = []
  #isOver = false
  readonly #policyMemory = new Map<string, unknown>()
  #promptTokens: number | undefined
  /** How many messages the conversation was opened with; later ones are of the agent's making. Not known of one that opens it itself. */
  #openingLength: number | undefined

  constructor(options: AgentRunOptions) {
    const { services, liveRollout, id, model, parent, hasOwnBudget, askedBy = [] } = options
    const { job } = liveRollout
    const { contextPolicy } = services.environment
    this.#options = options
    this.id = id
    this.services = services
    this.liveRollout = liveRollout
    this.trace = options.trace
    this.#recorded = recordedSession(job, id)
    const recorder = new AttemptRecorder(services.journal, id, job.attempt)
    const { sampled } = liveRollout
    this.session = new Session({
      id,
      model,
      recorder,
      recorded: this.#recorded,
      isChild: parent !== undefined,
      sampled,
    })
    this.tally = new Tally(parent?.tally)
    const parentTime = hasOwnBudget ? undefined : parent?.time
    this.time = new AgentTime(this, { limits: options.limits, signal: options.signal, parent: parentTime })
    this.context = new LiveContext(this, liveRollout, this.time.scope, askedBy)
    this.tools = new AgentCalls(this, options.toolBox)
    this.#contextCopy =
      contextPolicy &&
      new ContextCopy(contextPolicy, (copy) => {
        // A turn that is repeated from the journal was recorded when it was first taken.
        if (!this.session.isRepeating) this.record(contextEvent, copy)
      })
  }

  get model(): string {
    return this.#options.model.name
  }

  get depth(): number {
    const { parent } = this.#options
    return parent ? parent.depth + 1 : 0
  }

  get task(): unknown {
    return this.liveRollout.task
  }

  get messages(): readonly Message[] {
    return this.session.messages
  }

  get budget(): BudgetMeter {
    return this.time.budget
  }

  get signal(): AbortSignal {
    return this.time.signal
  }

  /** Whether it works for the reward, and not for the policy. */
  get reviews(): boolean {
    const { parent, hasOwnBudget } = this.#options
    return hasOwnBudget === true || this.rewardClock !== undefined || parent?.reviews === true
  }

  /** The length of the prompt, if the messages do not show it by themselves: see `RolloutRecord`. */
  get hiddenPromptLength(): number | undefined {
    const { messages } = this
    const first = messages.findIndex(({ role }) => role === 'assistant')
    const shown = first === -1 ? messages.length : first
    return this.#openingLength === shown ? undefined : this.#openingLength
  }

  get answer(): string | null {
    const last = this.session.messages.findLast((message) => message.role === 'assistant')
    return last ? textOf(last) : null
  }

  /** Whether the agent goes on where an earlier launch was cut off. */
  get isResumed(): boolean {
    return this.#recorded?.journalled !== undefined
  }

  /** Never rejects, except when the journal cannot be followed: then nothing of this attempt counts. */
  async run(agent: Agent, prompt: readonly Message[]): Promise<AgentEnd> {
    const end = await this.#work(agent, prompt)
    // A run that is being stopped does not wait for a server.
    if (!this.#options.signal.aborted) await this.session.versionsRecorded()
    const stale = this.#staleness()
    return stale && outcomes[end.outcome].scored ? endedBy(stale) : end
  }

  async #work(agent: Agent, prompt: readonly Message[]): Promise<AgentEnd> {
    try {
      this.#openWith(agent, prompt)
      await withAbort(Promise.try(agent, this), this.signal)
    } catch (thrown) {
      // An abort's reason explains more than whatever the agent's code made of it.
      const error = this.signal.aborted
        ? MillraceError.from(this.signal.reason, 'agent_failed')
        : agentFault('agent', thrown)
      if (error.code === 'replay_diverged') throw error
      return endedBy(error)
    } finally {
      this.abandon()
      await this.#closeKept()
    }
    // A resumed agent may have ended by an error that the recording's answers do not raise again.
    const end = this.isResumed ? this.#recorded?.end : undefined
    return end ? endedBy(MillraceError.fromWire(end)) : completed
  }

  #openWith({ opensConversation }: Agent, prompt: readonly Message[]): void {
    this.prompt = prompt
    if (opensConversation && this.services.settings.toolFormat) {
      const message = 'the agent asks for tools of its own, which a tool format cannot describe: leave out toolFormat'
      throw new MillraceError('env_invalid', message)
    }
    if (opensConversation) return
    this.append(...this.tools.style.opening(prompt, this.#options.toolBox))
    this.#openingLength = this.messages.length
  }

  readonly use = async <Kept extends AsyncDisposable>(opening: Promise<Kept>): Promise<Kept> => {
    this.#kept.push(opening)
    if (this.#isOver) await this.#closeKept()
    return await opening
  }

  /** In the reverse order. What could not be opened needs no closing; what cannot be closed must not cost the rest its end. */
  async #closeKept(): Promise<void> {
    this.#isOver = true
    for (const opening of this.#kept.splice(0).toReversed()) {
      const kept = await opening.catch(() => undefined)
      await Promise.try(() => kept?.[Symbol.asyncDispose]()).catch(() => {})
    }
  }

  /** Gives up whatever the agent has asked for, stops its clocks and lets go of its parent's signal. */
  abandon(): void {
    this.#endTurnsAndCalls()
    this.tools.cutOff()
    this.time.stop()
    this.#options.model.endSession(this.id)
    // A child is over now. A rollout's reward is still to come, and may ask judges and children.
    if (this.#options.parent) this.requests.close()
    else this.requests.abortRequests()
  }

  /** Turns and calls that an agent did not wait for must not spend more, nor work on a state that is scored and torn down. */
  #endTurnsAndCalls(): void {
    const underWay = [...this.#underWay, ...this.tools.underWay]
    if (underWay.length === 0) return
    // Usually nobody awaits these any more, and their rejection must not count as unhandled.
    for (const each of underWay) each.catch(() => {})
    this.time.scope.abort(new MillraceError('cancelled', 'the agent that asked for it has ended'))
  }

  readonly append = (...messages: readonly Message[]): void => {
    for (const message of messages) {
      this.session.append(message, toolAnswers.get(message))
      if (message.role === 'assistant' && message.tool_calls) this.tools.noteOwn(message.tool_calls)
    }
  }

  readonly turn = (options: TurnOptions = {}): Promise<Turn> => {
    const turn: Promise<Turn> = this.#takeTurn(options).finally(() => this.#underWay.delete(turn))
    this.#underWay.add(turn)
    return turn
  }

  readonly verify = (): Promise<Verification> => {
    this.#verifier ??= new Verifier(this)
    const verified: Promise<Verification> = this.#verifier.verify().finally(() => this.#underWay.delete(verified))
    this.#underWay.add(verified)
    return verified
  }

  /** Ends the whole rollout, whichever of its agents finds out. */
  endRollout(error: MillraceError): void {
    const { parent } = this.#options
    if (parent) parent.endRollout(error)
    else this.time.scope.abort(error)
  }

  async #takeTurn(options: TurnOptions): Promise<Turn> {
    try {
      this.signal.throwIfAborted()
      const stale = this.#staleness()
      if (stale) throw stale
      this.budget.startTurn()
    } catch (error) {
      // In a later turn of the event loop: an agent that retries endlessly must not block it for everybody else.
      await nextTurn()
      throw error
    }
    const copy = this.#contextCopy
    const messages =
      copy && (await this.time.spentIn('contextPolicy', () => copy.next(this.#contextView(), this.turns)))
    const { toolChoice, responseFormat, parallelToolCalls } = options
    const reply = await this.session.turn(
      {
        tools: this.tools.declared(options.tools),
        sampling: this.#samplingFor(options),
        captureTokens: this.services.settings.captureTokens,
        ...(messages && { messages }),
        ...(toolChoice && { toolChoice }),
        ...(responseFormat && { responseFormat }),
        ...(parallelToolCalls !== undefined && { parallelToolCalls }),
        ...(this.trace && { trace: this.trace }),
      },
      this.time,
    )
    return this.#onReply(reply)
  }

  #staleness(): MillraceError | undefined {
    const { maxVersionsBehind } = this.services.settings
    const lag = maxVersionsBehind === undefined ? undefined : this.liveRollout.sampled.furthestBehind()
    return lag && lag.behind > (maxVersionsBehind ?? Infinity) ? staleError(lag) : undefined
  }

  #onReply({ message, call, replayed }: SessionReply): Turn {
    const calls = this.tools.style.callsIn(message, this.turns)
    this.tools.noteReply(calls)
    this.turns += 1
    this.#promptTokens = call.usage.input
    this.tally.addCall(call, replayed)
    this.budget.charge(call.usage, call.cost)
    if (replayed) this.budget.carryWorkingTime(call.ms)
    return { message, finishReason: call.finishReason, calls, usage: call.usage }
  }

  #samplingFor({ sampling }: TurnOptions): Sampling {
    const { tokensLeft } = this.budget
    if (!sampling && tokensLeft === Infinity) return this.#options.sampling
    const merged = { ...this.#options.sampling, ...sampling }
    if (tokensLeft < (merged.maxTokens ?? Infinity)) merged.maxTokens = tokensLeft
    return merged
  }

  #contextView(): ContextView {
    return {
      messages: this.messages,
      promptTokens: this.#promptTokens,
      isToolResult: (message) => message.role === 'tool' || toolAnswers.has(message),
      memory: this.#policyMemory,
      openingLength: this.#openingLength ?? 0,
      child: (request) => this.context.child(request, this.signal),
      signal: this.signal,
    }
  }

  readonly update: AgentContext['update'] = async (reply) => {
    const { environment } = this.services
    // `update` speaks in the rollout's own conversation, not in a child's; and a child that `update` starts would call it again.
    if (!environment.update || this.#options.parent) return undefined
    this.context.reply = reply
    const update = this.time.spentIn('update', () => environment.update?.(this.context))
    return checkUpdate(
      await update.catch((thrown: unknown) => {
        throw agentFault('update', thrown)
      }),
    )
  }

  get child(): AgentContext['child'] {
    return this.context.child
  }

  readonly requireNames: AgentContext['requireNames'] = ({ tools, model }) => {
    if (tools) pickedTools(this.liveRollout.tools.box, tools, this.liveRollout)
    if (model !== undefined) this.services.model(model)
  }

  get note(): AgentContext['note'] {
    return this.context.note
  }

  onServerAway(why: MillraceError): () => void {
    return this.time.onServerAway(why)
  }

  get askedBy(): readonly ToolReports[] {
    return this.#options.askedBy ?? []
  }

  startChild(request: ChildRequest, signal: AbortSignal, asking?: CallingToolCall): Promise<ChildResult> {
    const { askedBy } = this
    const idPart = request.alongside && !asking ? 'alongside' : this.tools.childIdPart(asking?.call)
    return this.startChildAs(request, signal, { idPart, askedBy: asking ? [...askedBy, asking.reports] : askedBy })
  }

  startChildAs(request: ChildRequest, signal: AbortSignal, start: Omit<ChildStart, 'signal'>): Promise<ChildResult> {
    return this.requests.run(signal, (own) => this.#options.startChild(request, this, { ...start, signal: own }))
  }

  askJudge(request: JudgeRequest, signal: AbortSignal, special?: Partial<JudgeAsker>): Promise<AssistantMessage> {
    const { id: rollout, services, tally, trace, rewardClock: clock } = this
    const { job, verdicts } = this.liveRollout
    const asker = { services, rollout, attempt: job.attempt, tally, clock, trace, verdicts }
    return this.requests.run(signal, (own) => askJudge(request, { ...asker, ...special, signal: own }))
  }

  record(name: string, data: object): void {
    this.services.journal.append(attemptEvent({ id: this.id, attempt: this.liveRollout.job.attempt }, name, data))
  }
}
