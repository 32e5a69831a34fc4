import {
  type Agent,
  type AgentContext,
  type ChildRequest,
  type ChildResult,
  type ContextView,
  type JudgeRequest,
  type Turn,
  type TurnOptions,
} from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import {
  Session,
  type CallHooks,
  type ModelClient,
  type SentCall,
  type SessionReply,
  type Tape,
} from '../inference/index.ts'
import { AbortScope, raced, thrownBy, type SpentTime, type StopClock } from '../kit/index.ts'
import type { AssistantMessage, Limits, Message, MessageNode, Outcome, ToolReports, Sampling } from '../schema/index.ts'
import { textOf } from '../schema/index.ts'
import { AttemptRecorder } from '../store/index.ts'
import { readOutputToolName, type AskingCall } from '../tools/index.ts'
import { AgentCalls, toolAnswersIn, type CallsHost } from './agent-calls.ts'
import { askJudge } from './ask-judge.ts'
import { BudgetMeter } from './budget-meter.ts'
import { ContextCopy, contextEvent, type SentCopy } from './context-copy.ts'
import type { Engine } from './engine.ts'
import { closedErrands, Errands } from './errands.ts'
import type { RolloutJob } from './job.ts'
import { LiveContext, type ContextHost } from './live-context.ts'
import { outcomeOfError } from './outcome-of-error.ts'
import type { PaidVerdict } from './recorded-work.ts'
import { tapeOf } from './replay-cassette.ts'
import type { Situation } from './situation.ts'
import { Tally } from './tally.ts'
import { timeUp } from './time-up.ts'
import type { RolloutTools } from './toolkit.ts'
import { updateWord } from './update-word.ts'

/** What most environments have to say after a turn. */
const nothing = Promise.resolve(undefined)

export interface AgentRunOptions {
  readonly engine: Engine
  /** What this run stands in: the task, the state, the rollout it belongs to. Children share it with their parent. */
  readonly situation: Situation
  readonly id: string
  readonly model: ModelClient
  readonly limits: Limits
  readonly sampling: Sampling
  readonly toolNames?: readonly string[] | undefined
  readonly parent?: AgentRun
  /** Of a child, what the tool calls report that asked for it, the outermost first. */
  readonly askedBy?: readonly ToolReports[] | undefined
  readonly startChild: StartChild
  readonly signal: AbortSignal
  /** See `RolloutStartEvent`. */
  readonly trace: object | undefined
}

/** Given from outside, because a child is an agent run itself. */
export type StartChild = (request: ChildRequest, parent: AgentRun, start: ChildStart) => Promise<ChildResult>

export interface ChildStart {
  /** See `childPlace`. */
  readonly place: string
  readonly signal: AbortSignal
  readonly askedBy: readonly ToolReports[]
}

export interface AgentEnd {
  readonly outcome: Outcome
  readonly error?: MillraceError
}

const completed: AgentEnd = { outcome: 'completed' }

/**
 * One agent at work: its session with the model, its budget, its tools. A rollout has one; each child has one of its own,
 * below its parent's in the budget tree.
 */
export class AgentRun implements AgentContext, ContextHost, CallsHost, CallHooks {
  readonly id: string
  readonly model: string
  /** Set while the reward runs: the clock that its questions to a judge must not run down while they queue. */
  rewardClock: StopClock | undefined
  readonly engine: Engine
  readonly situation: Situation
  readonly session: Session
  readonly budget: BudgetMeter
  readonly tally: Tally
  readonly context: LiveContext
  readonly tools: AgentCalls
  readonly trace: object | undefined
  turns = 0
  /** The function of the environment that is at work, for whoever asks where the time went; tools say it themselves. */
  doing: 'setup' | 'update' | undefined
  /** What was at work when its time was up. */
  cutOffIn: string | undefined
  readonly #parent: AgentRun | undefined
  readonly #startChild: StartChild
  readonly #askedBy: readonly ToolReports[]
  readonly #model: ModelClient
  readonly #scope: AbortScope
  readonly #sampling: Sampling
  readonly #journalled: readonly MessageNode[]
  readonly #toolBox: RolloutTools['box']
  readonly #contextCopy: ContextCopy | undefined
  /** What the context policy keeps from turn to turn; made with its first one. */
  #policyMemory: Map<string, unknown> | undefined
  #promptTokens: number | undefined
  #openingLength = 0
  /** Made with the first: most have none. */
  #errands: Errands | undefined
  /** By this agent or a child of it. */
  #lastSent: SentCall | undefined
  /** Why it waits for the model, if a backend has failed since something was sent. */
  #heldUpBy: MillraceError | undefined

  constructor(options: AgentRunOptions) {
    const { engine, situation, id, parent } = options
    // First, because it may throw: what comes after holds timers.
    const { box } = situation.tools
    this.#toolBox = options.toolNames ? box.pick(withReader(options.toolNames, situation)) : box
    this.id = id
    this.model = options.model.name
    this.#model = options.model
    this.engine = engine
    this.situation = situation
    this.trace = options.trace
    this.#parent = parent
    this.#startChild = options.startChild
    this.#askedBy = options.askedBy ?? []
    this.#scope = new AbortScope(options.signal)
    this.#journalled = situation.job.recorded?.nodes[id] ?? []
    this.session = new Session({
      id,
      model: options.model,
      recorder: new AttemptRecorder(engine.journal, id, situation.job.attempt),
      journalled: this.#journalled,
      tape: tapeFor(situation.job, id),
      isChild: parent !== undefined,
    })
    // A child started by the reward does not live on what the agent left over: that may be nothing.
    const parentBudget = parent?.budget.isStopped ? undefined : parent?.budget
    this.budget = new BudgetMeter({ limits: options.limits, parent: parentBudget, onSpent: this.#onSpent })
    this.tally = new Tally(parent?.tally)
    for (const { usage, cost } of paidBefore(situation.job, id)) this.tally.addJudgeCall(usage, cost)
    this.context = new LiveContext(this, { situation, scope: this.#scope, askedBy: this.#askedBy })
    this.#sampling = options.sampling
    this.tools = new AgentCalls(this, this.#toolBox)
    const { contextPolicy } = engine.environment
    this.#contextCopy = contextPolicy && new ContextCopy(contextPolicy, (copy) => this.#recordCopy(copy))
  }

  get messages(): readonly Message[] {
    return this.session.messages
  }

  get signal(): AbortSignal {
    return this.#scope.signal
  }

  /** The text of the last assistant message; null if the model never said anything. */
  get answer(): string | null {
    const last = this.session.messages.findLast((message) => message.role === 'assistant')
    return last ? textOf(last) : null
  }

  /**
   * Never rejects, except when the journal cannot be followed: then nothing of this attempt counts. Chained, not awaited: an
   * async frame would be held for as long as the agent takes.
   */
  run(agent: Agent, prompt: readonly Message[]): Promise<AgentEnd> {
    return this.#work(agent, prompt).then(
      () => {
        this.abandon()
        return this.#earlierEnd() ?? completed
      },
      (thrown: unknown) => {
        this.abandon()
        // An abort's reason explains more than whatever the agent's code made of it.
        const error = this.signal.aborted
          ? MillraceError.from(this.signal.reason, 'agent_failed')
          : named('agent', thrown)
        if (error.code === 'replay_diverged') throw error
        return { outcome: outcomeOfError(error), error }
      },
    )
  }

  /** How it had ended in an earlier sitting, where nothing that it asked for tells it again: in `update`, or in its own code. */
  #earlierEnd(): AgentEnd | undefined {
    const end = this.situation.job.recorded?.ends[this.id]
    if (!end) return undefined
    const error = MillraceError.fromWire(end)
    return { outcome: outcomeOfError(error), error }
  }

  #work(agent: Agent, prompt: readonly Message[]): Promise<void> {
    try {
      this.append(...this.engine.callStyle.opening(prompt, this.#toolBox))
      this.#openingLength = this.session.messages.length
      return raced(Promise.try(agent, this), this.signal)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /** Stops its clocks, lets go of its parent's signal, and gives up what it has asked of others. */
  abandon(): void {
    this.tools.cutOff()
    this.budget.stop()
    this.#scope[Symbol.dispose]()
    this.#model.endSession(this.id)
    // A child is over now; a rollout has its reward before it, which may ask others, too.
    if (this.#parent) this.closeErrands()
    else this.#errands?.giveUp()
  }

  /** Nobody is asked for anything in its name any more. */
  closeErrands(): void {
    if (this.#errands) this.#errands.close()
    else this.#errands = closedErrands
  }

  readonly append = (...messages: readonly Message[]): void => {
    for (const message of messages) this.session.append(message, toolAnswersIn(message))
  }

  /** Chained, not awaited: an async frame would be held for as long as the model takes, as in `Session.turn`. */
  readonly turn = (options: TurnOptions = {}): Promise<Turn> => {
    try {
      this.signal.throwIfAborted()
      this.budget.startTurn()
    } catch (error) {
      return rejectedLater(error)
    }
    if (!this.#contextCopy) return this.#ask(options)
    return this.#contextCopy.next(this.#contextView(), this.turns).then((messages) => this.#ask(options, messages))
  }

  #ask(options: TurnOptions, messages?: readonly Message[]): Promise<Turn> {
    const request = {
      tools: this.engine.callStyle.declared(options.tools ?? this.tools.definitions),
      sampling: this.#samplingFor(options),
      captureTokens: this.engine.settings.captureTokens,
    }
    const { toolChoice } = options
    const { trace } = this
    const asked =
      messages || toolChoice || trace
        ? { ...request, ...(messages && { messages }), ...(toolChoice && { toolChoice }), ...(trace && { trace }) }
        : request
    return this.session.turn(asked, this).then((reply) => this.#take(reply))
  }

  #take({ message, call, replayed }: SessionReply): Turn {
    const calls = this.engine.callStyle.callsIn(message, this.turns)
    this.tools.noteReply(calls)
    this.turns += 1
    this.tally.addCall(call, replayed)
    this.#promptTokens = call.usage.input
    this.budget.charge(call.usage, call.cost)
    if (replayed) this.budget.carryWorkingTime(call.ms)
    return { message, finishReason: call.finishReason, calls }
  }

  readonly update: AgentContext['update'] = (reply) => {
    const { environment } = this.engine
    // A child's conversation is not the one that `update` has its word in, and a child of `update` would start the next one.
    if (!environment.update || this.#parent) return nothing
    this.context.reply = reply
    this.doing = 'update'
    return Promise.try(() => environment.update?.(this.context)).then(
      (said) => {
        this.doing = undefined
        return updateWord(said)
      },
      (thrown: unknown) => {
        this.doing = undefined
        throw this.signal.aborted ? thrown : named('update', thrown)
      },
    )
  }

  /** A call waits for capacity: that is not the agent's time. */
  onWaitStart(): void {
    this.budget.startWait()
  }

  onWaitEnd(): void {
    this.budget.endWait()
  }

  onFailedTry(ms: number, error: MillraceError): void {
    this.#heldUpBy = error
    this.budget.giveBack(ms)
  }

  onParked(error: MillraceError): void {
    this.#heldUpBy = error
  }

  onSend(call: SentCall): void {
    this.#lastSent = call
    this.#heldUpBy = undefined
    this.#parent?.onSend(call)
  }

  startChild(request: ChildRequest, signal: AbortSignal, asking?: AskingCall): Promise<ChildResult> {
    const place = this.tools.placeOf(asking?.call)
    const askedBy = asking ? [...this.#askedBy, asking.reports] : this.#askedBy
    this.#errands ??= new Errands()
    return this.#errands.run(signal, (own) => this.#startChild(request, this, { place, signal: own, askedBy }))
  }

  askJudge(request: JudgeRequest, signal: AbortSignal): Promise<AssistantMessage> {
    const { attempt, recorded } = this.situation.job
    const { engine, tally, rewardClock: clock } = this
    const earlier = recorded?.judgeCalls[this.id]?.length
    const { verdicts } = this.situation
    const asked = { engine, rollout: this.id, attempt, tally, earlier, clock, trace: this.trace, verdicts }
    this.#errands ??= new Errands()
    return this.#errands.run(signal, (own) => askJudge(request, { ...asked, signal: own }))
  }

  /** Whether what happens now had happened before, in an earlier sitting that recorded it. */
  get isRepeatingJournal(): boolean {
    return this.#journalled.length > this.session.messages.length
  }

  #contextView(): ContextView {
    this.#policyMemory ??= new Map()
    return {
      messages: this.session.messages,
      promptTokens: this.#promptTokens,
      isToolResult: (message) => message.role === 'tool' || toolAnswersIn(message) !== undefined,
      memory: this.#policyMemory,
      openingLength: this.#openingLength,
      child: (request) => this.startChild(request, this.signal),
      signal: this.signal,
    }
  }

  #recordCopy(copy: SentCopy): void {
    // A turn that is repeated from the journal was recorded when it was first taken.
    if (!this.isRepeatingJournal) this.record(contextEvent, copy)
  }

  record(name: string, data: object): void {
    const { attempt } = this.situation.job
    const at = Date.now()
    this.engine.journal.append({ kind: 'event', rollout: this.id, attempt, name, at, data: JSON.stringify(data) })
  }

  #samplingFor({ sampling }: TurnOptions): Sampling {
    const { tokensLeft } = this.budget
    if (!sampling && tokensLeft === Infinity) return this.#sampling
    const merged = { ...this.#sampling, ...sampling }
    if (tokensLeft < (merged.maxTokens ?? Infinity)) merged.maxTokens = tokensLeft
    return merged
  }

  readonly #onSpent = (what: SpentTime): void => {
    const lastSent = this.#lastSent
    // There will be no reply to count it with.
    if (lastSent?.isUnheard && !this.signal.aborted) this.tally.modelMs += performance.now() - lastSent.sentAt
    const { isWaiting } = this.budget
    const asking = lastSent?.isUnderWay && !isWaiting ? `a model call to ${lastSent.backend}` : undefined
    const doing = this.doing ?? this.tools.doing ?? asking
    this.cutOffIn = doing
    this.#scope.abort(timeUp(what, { lastSent, doing, isWaiting, heldUpBy: this.#heldUpBy }))
  }
}

/** What a session hears beyond its journal: how it had ended, if it had, or what another rollout heard. */
function tapeFor({ id: rollout, recorded, cassette }: RolloutJob, id: string): Tape | undefined {
  const end = recorded?.ends[id]
  return end ? { nodes: recorded?.nodes[id] ?? [], end } : tapeOf(cassette, rollout, id)
}

/** What the judges of a session had been paid that are asked again, or were. */
function paidBefore({ recorded, cassette }: RolloutJob, id: string): readonly PaidVerdict[] {
  return recorded?.judgeCalls[id] ?? cassette?.superseded?.[id] ?? []
}

/** Whoever may call tools whose outputs are kept must be able to read them. */
function withReader(names: readonly string[], { outputs }: Situation): readonly string[] {
  return !outputs || names.length === 0 || names.includes(readOutputToolName) ? names : [...names, readOutputToolName]
}

/** What the author's own code threw, with its place. Errors of ours say what they are, and what that means for the rollout. */
function named(hook: 'agent' | 'update', thrown: unknown): MillraceError {
  return thrown instanceof MillraceError ? thrown : thrownBy(hook, thrown, 'agent_failed')
}

/** In another turn of the loop: an agent that tries again whatever happens must not keep it from everybody else. */
function rejectedLater(error: unknown): Promise<never> {
  return new Promise((_resolve, reject) => {
    setImmediate(reject, error)
  })
}
