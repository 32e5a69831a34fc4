import type { Agent, AgentContext, ChildRequest, ChildResult, TurnOptions, Turn } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { Session, type ModelClient } from '../inference/index.ts'
import { raced } from '../kit/index.ts'
import { textOf, type Limits, type Message, type Sampling, type ToolReports } from '../schema/index.ts'
import { AttemptRecorder } from '../store/index.ts'
import { AgentCalls, toolAnswersIn, type CallsHost } from './agent-calls.ts'
import { completed, endedBy, type AgentEnd } from './agent-end.ts'
import { AgentRequests, type ChildStart, type RequestsHost } from './agent-requests.ts'
import { agentFault } from './agent-fault.ts'
import { AgentTime, type TimeHost } from './agent-time.ts'
import { AgentTurns, type TurnsHost } from './agent-turns.ts'
import type { BudgetMeter } from './budget-meter.ts'
import type { RunServices } from './run-services.ts'
import { attemptEvent } from './event-entries.ts'
import { LiveContext, type ContextHost } from './live-context.ts'
import { sessionHistory, type SessionHistory } from './session-history.ts'
import type { LiveRollout } from './live-rollout.ts'
import { Tally } from './tally.ts'
import type { RolloutTools } from './toolkit.ts'
import { countUnrepeated } from './unrepeated-work.ts'
import { updateWord } from './update-word.ts'

/** The result of `update` where the environment has none, as most do. */
const nothing = Promise.resolve(undefined)

export interface AgentRunOptions {
  readonly services: RunServices
  /** The rollout that this agent works on. Children share it with their parent. */
  readonly liveRollout: LiveRollout
  readonly id: string
  readonly model: ModelClient
  readonly limits: Limits
  readonly sampling: Sampling
  /** The tools that this agent may call: all of the rollout's, or some. */
  readonly toolBox: RolloutTools['box']
  readonly parent?: AgentRun
  /** See `RequestsHost`. */
  readonly askedBy?: readonly ToolReports[] | undefined
  readonly startChild: StartChild
  readonly signal: AbortSignal
  /** See `RolloutStartEvent`. */
  readonly trace: object | undefined
}

/** Starts a child. Given from outside, because a child is an agent run itself. */
export type StartChild = (request: ChildRequest, parent: AgentRun, start: ChildStart) => Promise<ChildResult>

type Host = ContextHost & CallsHost & TurnsHost & TimeHost & RequestsHost

/**
 * One agent at work: its session with the model, and its turns, calls, requests and time, each in a class of its own. A rollout
 * has one; each child has one of its own, below its parent's in the budget tree.
 */
export class AgentRun implements AgentContext, Host {
  readonly id: string
  readonly services: RunServices
  readonly liveRollout: LiveRollout
  readonly session: Session
  readonly time: AgentTime
  readonly tally: Tally
  readonly context: LiveContext
  readonly tools: AgentCalls
  readonly requests: AgentRequests
  readonly askedBy: readonly ToolReports[]
  readonly trace: object | undefined
  readonly #parent: AgentRun | undefined
  readonly #model: ModelClient
  readonly #startChild: StartChild
  readonly #history: SessionHistory
  readonly #toolBox: RolloutTools['box']
  readonly #turns: AgentTurns

  constructor({ services, liveRollout, id, model, parent, ...options }: AgentRunOptions) {
    this.id = id
    this.services = services
    this.liveRollout = liveRollout
    this.askedBy = options.askedBy ?? []
    this.trace = options.trace
    this.#parent = parent
    this.#model = model
    this.#toolBox = options.toolBox
    this.#startChild = options.startChild
    this.#history = sessionHistory(liveRollout.job, id)
    const { nodes, tape, paid } = this.#history
    const recorder = new AttemptRecorder(services.journal, id, liveRollout.job.attempt)
    this.session = new Session({ id, model, recorder, journalled: nodes, tape, isChild: parent !== undefined })
    this.tally = new Tally(parent?.tally)
    for (const verdict of paid) this.tally.addJudgeCall(verdict)
    this.time = new AgentTime(this, { limits: options.limits, signal: options.signal, parent: parent?.time })
    this.context = new LiveContext(this, { liveRollout, scope: this.time.scope, askedBy: this.askedBy })
    this.tools = new AgentCalls(this, this.#toolBox)
    this.requests = new AgentRequests(this)
    this.#turns = new AgentTurns(this, options.sampling)
  }

  get model(): string {
    return this.#model.name
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

  get turns(): number {
    return this.#turns.taken
  }

  onServerAway(why: MillraceError): () => void {
    return this.time.onServerAway(why)
  }

  /** The text of the last assistant message; null if the model never said anything. */
  get answer(): string | null {
    const last = this.session.messages.findLast((message) => message.role === 'assistant')
    return last ? textOf(last) : null
  }

  /** Whether the present message is still one that an earlier sitting recorded. */
  get isRepeatingJournal(): boolean {
    return this.#history.nodes.length > this.session.messages.length
  }

  get earlierVerdicts(): number | undefined {
    return this.#history.verdicts
  }

  /**
   * Never rejects, except when the journal cannot be followed: then nothing of this attempt counts. Chained, not awaited: an
   * async frame would be held for as long as the agent takes.
   */
  run(agent: Agent, prompt: readonly Message[]): Promise<AgentEnd> {
    return this.#work(agent, prompt).then(
      () => {
        this.abandon()
        // The recorded agent may have ended by an error that the recording's answers do not raise again: in `update`, or in its
        // own code.
        const { end } = this.#history
        return end ? endedBy(MillraceError.fromWire(end)) : completed
      },
      (thrown: unknown) => {
        // An abort's reason explains more than whatever the agent's code made of it.
        const error = this.signal.aborted
          ? MillraceError.from(this.signal.reason, 'agent_failed')
          : agentFault('agent', thrown)
        this.abandon()
        if (error.code === 'replay_diverged') throw error
        return endedBy(error)
      },
    )
  }

  #work(agent: Agent, prompt: readonly Message[]): Promise<void> {
    try {
      this.append(...this.services.callStyle.opening(prompt, this.#toolBox))
      this.#turns.noteOpening()
      return raced(Promise.try(agent, this), this.signal)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /** Gives up whatever the agent has asked for, stops its clocks and lets go of its parent's signal. */
  abandon(): void {
    this.#endTurnsAndCalls()
    this.tools.cutOff()
    this.time.stop()
    this.#model.endSession(this.id)
    // A child is over now. A rollout's reward is still to come, and may ask judges and children.
    if (this.#parent) this.requests.close()
    else this.requests.giveUp()
  }

  /** Called before the record of the agent is made: from then on nothing is repeated. */
  countUnrepeated(): void {
    const { job, countedChildren } = this.liveRollout
    if (!job.recorded) return
    const isCounted = (child: string): boolean => countedChildren?.has(child.slice(job.id.length)) === true
    countUnrepeated(job.recorded, this.id, { messages: this.messages.length, isCounted }, this.tally)
  }

  /** Turns and calls that an agent did not wait for must not spend more, nor work on a state that is scored and torn down. */
  #endTurnsAndCalls(): void {
    const underWay = [...this.#turns.underWay, ...this.tools.underWay]
    if (underWay.length === 0) return
    // Usually nobody awaits these any more, and their rejection must not count as unhandled.
    for (const each of underWay) each.catch(() => {})
    this.time.scope.abort(new MillraceError('cancelled', 'the agent that asked for it has ended'))
  }

  readonly append = (...messages: readonly Message[]): void => {
    for (const message of messages) this.session.append(message, toolAnswersIn(message))
  }

  readonly turn = (options: TurnOptions = {}): Promise<Turn> => this.#turns.take(options)

  readonly update: AgentContext['update'] = (reply) => {
    const { environment } = this.services
    // `update` speaks in the rollout's own conversation, not in a child's; and a child that `update` starts would call it again.
    if (!environment.update || this.#parent) return nothing
    this.context.reply = reply
    return this.time
      .spentIn('update', () => environment.update?.(this.context))
      .then(updateWord, (thrown: unknown) => {
        throw agentFault('update', thrown)
      })
  }

  get child(): AgentContext['child'] {
    return this.context.child
  }

  runChild(request: ChildRequest, start: ChildStart): Promise<ChildResult> {
    return this.#startChild(request, this, start)
  }

  record(name: string, data: object): void {
    this.services.journal.append(attemptEvent({ id: this.id, attempt: this.liveRollout.job.attempt }, name, data))
  }
}
