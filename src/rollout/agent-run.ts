import type {
  Agent,
  AgentContext,
  AgentTools,
  ChildRequest,
  ChildResult,
  JudgeRequest,
  Turn,
  TurnOptions,
} from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { Session, type CallHooks, type ModelClient } from '../inference/index.ts'
import { AbortScope, raced, type StopClock } from '../kit/index.ts'
import type {
  AssistantMessage,
  Limits,
  Message,
  MessageNode,
  Outcome,
  Sampling,
  ToolCall,
  ToolMessage,
  ToolRecord,
} from '../schema/index.ts'
import { textOf } from '../schema/index.ts'
import { AttemptRecorder } from '../store/index.ts'
import { askJudge } from './ask-judge.ts'
import { BudgetMeter, spent, type SpentLimit } from './budget-meter.ts'
import type { Engine } from './engine.ts'
import { LiveContext, type ContextHost } from './live-context.ts'
import { outcomeOfError } from './outcome-of-error.ts'
import type { Situation } from './situation.ts'
import { Tally } from './tally.ts'

/**
 * How each tool message came to be, found again when the agent appends it; an agent may also append tool messages of its
 * own making. One for all: a map costs more than what a rollout puts into it.
 */
const toolRecords = new WeakMap<Message, ToolRecord>()

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
  readonly startChild: StartChild
  readonly signal: AbortSignal
  /** See `RolloutStartEvent`. */
  readonly trace: object | undefined
}

/** Given from outside, because a child is an agent run itself. */
export type StartChild = (request: ChildRequest, parent: AgentRun, signal: AbortSignal) => Promise<ChildResult>

export interface AgentEnd {
  readonly outcome: Outcome
  readonly error?: MillraceError
}

/**
 * One agent at work: its session with the model, its budget, its tools. A rollout has one; each child has one of its own,
 * below its parent's in the budget tree.
 */
export class AgentRun implements AgentContext, ContextHost, CallHooks {
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
  readonly tools: AgentTools
  readonly trace: object | undefined
  turns = 0
  readonly #startChild: StartChild
  readonly #model: ModelClient
  readonly #scope: AbortScope
  readonly #sampling: Sampling
  readonly #journalled: readonly MessageNode[]
  readonly #toolBox: Engine['tools']

  constructor(options: AgentRunOptions) {
    const { engine, situation, id, parent } = options
    // First, because it may throw: what comes after holds timers.
    this.#toolBox = options.toolNames ? engine.tools.pick(options.toolNames) : engine.tools
    this.id = id
    this.model = options.model.name
    this.#model = options.model
    this.engine = engine
    this.situation = situation
    this.trace = options.trace
    this.#startChild = options.startChild
    this.#scope = new AbortScope(options.signal)
    this.#journalled = situation.job.journalled?.[id] ?? []
    this.session = new Session({
      id,
      model: options.model,
      recorder: new AttemptRecorder(engine.journal, id, situation.job.attempt),
      journalled: this.#journalled,
      isChild: parent !== undefined,
    })
    // A child started by the reward does not live on what the agent left over: that may be nothing.
    const parentBudget = parent?.budget.isStopped ? undefined : parent?.budget
    this.budget = new BudgetMeter({ limits: options.limits, parent: parentBudget, onSpent: this.#onSpent })
    this.tally = new Tally(parent?.tally)
    this.context = new LiveContext(this, { situation, options: engine.options, signal: this.signal })
    this.#sampling = options.sampling
    this.tools = { definitions: this.#toolBox.definitions, call: this.#callTools }
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

  /** Never rejects, except when the journal cannot be followed: then nothing of this attempt counts. */
  async run(agent: Agent, prompt: readonly Message[]): Promise<AgentEnd> {
    try {
      this.append(...prompt)
      await raced(
        Promise.try(() => agent(this)),
        this.signal,
      )
      return { outcome: 'completed' }
    } catch (thrown) {
      // An abort's reason explains more than whatever the agent's code made of it.
      const error = MillraceError.from(this.signal.aborted ? this.signal.reason : thrown, 'agent_failed')
      if (error.code === 'replay_diverged') throw error
      return { outcome: outcomeOfError(error), error }
    } finally {
      this.abandon()
    }
  }

  /** Stops its clocks and lets go of its parent's signal. */
  abandon(): void {
    this.budget.stop()
    this.#scope[Symbol.dispose]()
    this.#model.endSession(this.id)
  }

  readonly append = (...messages: readonly Message[]): void => {
    for (const message of messages) this.session.append(message, toolRecords.get(message))
  }

  readonly turn = async (options: TurnOptions = {}): Promise<Turn> => {
    this.budget.startTurn()
    const { message, call, replayed } = await this.session.turn(
      {
        tools: options.tools ?? this.tools.definitions,
        sampling: this.#samplingFor(options),
        captureTokens: this.engine.settings.captureTokens,
        ...(options.toolChoice && { toolChoice: options.toolChoice }),
        ...(this.trace && { trace: this.trace }),
      },
      this,
    )
    this.turns += 1
    this.tally.addCall(call)
    this.budget.charge(call.usage, call.cost)
    if (replayed) this.budget.carryWorkingTime(call.ms)
    return { message, finishReason: call.finishReason }
  }

  readonly update: AgentContext['update'] = (reply) => {
    const { environment } = this.engine
    if (!environment.update) return nothing
    this.context.reply = reply
    return Promise.try(() => environment.update?.(this.context))
  }

  /** A call waits for capacity: that is not the agent's time. */
  onWaitStart(): void {
    this.budget.startWait()
  }

  onWaitEnd(): void {
    this.budget.endWait()
  }

  onFailedTry(ms: number): void {
    this.budget.giveBack(ms)
  }

  startChild(request: ChildRequest, signal: AbortSignal): Promise<ChildResult> {
    return this.#startChild(request, this, signal)
  }

  askJudge(request: JudgeRequest, signal: AbortSignal): Promise<AssistantMessage> {
    const { attempt } = this.situation.job
    const { engine, tally, rewardClock: clock } = this
    return askJudge(request, { engine, rollout: this.id, attempt, tally, clock, trace: this.trace, signal })
  }

  readonly #callTools = async (calls: readonly ToolCall[]): Promise<readonly ToolMessage[]> => {
    const startedAt = performance.now()
    const isReplaying = this.#journalled.length > this.session.messages.length
    const results = await this.#toolBox.call(calls, {
      context: this.context,
      signal: this.signal,
      ...(this.trace && { trace: this.trace }),
      ...(isReplaying && { recall: (_call: ToolCall, index: number) => this.#recall(index) }),
    })
    let errors = 0
    const messages = results.map(({ message, record }) => {
      if (record.status !== 'ok') errors += 1
      toolRecords.set(message, record)
      return message
    })
    this.tally.addToolCalls(calls.length, errors, performance.now() - startedAt)
    return messages
  }

  #recall(index: number): { message: ToolMessage; record: ToolRecord } | undefined {
    const recorded = this.session.recall(index)
    if (recorded?.message.role !== 'tool') return undefined
    return { message: recorded.message, record: recorded.tool }
  }

  #samplingFor({ sampling }: TurnOptions): Sampling {
    const { tokensLeft } = this.budget
    if (!sampling && tokensLeft === Infinity) return this.#sampling
    const merged = { ...this.#sampling, ...sampling }
    if (tokensLeft < (merged.maxTokens ?? Infinity)) merged.maxTokens = tokensLeft
    return merged
  }

  readonly #onSpent = (limit: SpentLimit): void => {
    this.#scope.abort(
      spent(limit, limit === 'time' ? 'its working time is used up' : 'its time on the clock is used up'),
    )
  }
}
