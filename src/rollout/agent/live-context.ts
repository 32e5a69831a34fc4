import {
  groupRewardNames,
  ownRewardNames,
  rewardClock,
  type Budget,
  type ChildRequest,
  type ChildResult,
  type JudgeRequest,
  type RewardContext,
  type RolloutIdentity,
  type TimedContext,
  type UpdateContext,
} from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { AbortScope, type StopClock } from '../../kit/index.ts'
import {
  outcomes,
  type AssistantMessage,
  type Json,
  type Message,
  type Outcome,
  type ToolReports,
  type Usage,
} from '../../schema/index.ts'
import type { CallingToolCall, ServerCalls, ToolOutputs } from '../../tools/index.ts'
import { checkChildRequest, checkJudgeRequest } from './checks.ts'
import type { LiveRollout, RunServices } from '../environment/live-rollout.ts'
import { RecordedServers } from '../recording/recording.ts'

/** A copy that can be written down. A value that is no JSON is refused here, where its author sees it. */
function plainJson(name: string, value: Json): Json {
  let text: string | undefined
  try {
    text = JSON.stringify(value)
  } catch (error) {
    throw new MillraceError('env_invalid', `note "${name}" is not JSON: ${String(error)}`, { cause: error })
  }
  if (text === undefined) throw new MillraceError('env_invalid', `note "${name}" is not JSON: it is a ${typeof value}`)
  return JSON.parse(text) as Json
}

/** Refuses the one name under which an object would keep nothing. */
function nameable(what: 'metric' | 'note', name: string): string {
  if (name !== '__proto__') return name
  throw new MillraceError('env_invalid', `a ${what} cannot be called "__proto__": choose another name`)
}

const noReply: AssistantMessage = Object.freeze({ role: 'assistant', content: null })

type Context = RewardContext<unknown, unknown, unknown> & UpdateContext<unknown, unknown, unknown> & TimedContext

type SignalScope = Pick<AbortScope, 'signal'>

export interface ContextHost {
  readonly services: Pick<RunServices, 'environment'>
  readonly budget: Budget
  readonly messages: readonly Message[]
  readonly answer: string | null
  readonly tally: { readonly toolRepairs: number; readonly usage?: Usage }
  /** A call of the agent waits for a tool server to be opened again. Returns what to call when the wait is over. */
  onServerAway(why: MillraceError): () => void
  /** `asking` is the tool call that asks for the child, if one does. */
  startChild(request: ChildRequest, signal: AbortSignal, asking?: CallingToolCall): Promise<ChildResult>
  askJudge(request: JudgeRequest, signal: AbortSignal): Promise<AssistantMessage>
}

/** What an environment's functions get. Its functions are bound, because authors destructure it. */
export class LiveContext implements Context {
  readonly rollout: RolloutIdentity
  readonly task: unknown
  readonly options: unknown
  readonly servers: ServerCalls
  readonly outputs: ToolOutputs | undefined
  reply = noReply
  outcome: Outcome = 'completed'
  truncated = false
  readonly #host: ContextHost
  readonly #liveRollout: LiveRollout
  /** The agent's scope, then that of the time kept for the reward. A scope makes its signal when somebody reads it. */
  #scope: SignalScope
  #rewardClock: TimedContext[typeof rewardClock]
  /** For a child: the reports of the calls that asked for it, the outermost first. They also keep what the child reports. */
  readonly #askedBy: readonly ToolReports[]
  #conversation: readonly Message[] | undefined

  constructor(host: ContextHost, liveRollout: LiveRollout, scope: SignalScope, askedBy: readonly ToolReports[] = []) {
    this.#host = host
    this.#liveRollout = liveRollout
    this.rollout = liveRollout.identity
    this.task = liveRollout.task
    this.options = liveRollout.options
    const { servers } = liveRollout.tools
    this.servers = servers instanceof RecordedServers ? servers.withOnAway(this.#onServerAway) : servers
    this.outputs = liveRollout.outputs
    this.#scope = scope
    this.#askedBy = askedBy
  }

  /** The agent has ended with `outcome`: from now on the context belongs to the reward. */
  turnToReward(outcome: Outcome, { scope, clock }: { readonly scope: SignalScope; readonly clock: StopClock }): void {
    this.outcome = outcome
    this.truncated = outcomes[outcome].truncated
    this.#scope = scope
    this.#rewardClock = clock
    // A frozen copy: no reward component may change it for the next one, nor an agent that goes on after its end.
    this.#conversation = Object.freeze([...this.#host.messages])
  }

  get signal(): AbortSignal {
    return this.#scope.signal
  }

  /** The clock of the agent, or of the reward, stands still while a call waits for a tool server. */
  readonly #onServerAway = (why: MillraceError): (() => void) => {
    const clock = this.#rewardClock
    if (!clock) return this.#host.onServerAway(why)
    clock.startWait()
    return () => clock.endWait()
  }

  get [rewardClock]() {
    return this.#rewardClock
  }

  get state(): unknown {
    return this.#liveRollout.state
  }

  get budget(): Budget {
    return this.#host.budget
  }

  get messages(): readonly Message[] {
    return this.#conversation ?? this.#host.messages
  }

  get answer(): string {
    return this.#host.answer ?? ''
  }

  get toolRepairs(): number {
    return this.#host.tally.toolRepairs
  }

  /** What the agent and its children have used so far, for verifiers that are sent a whole response. Undefined if no agent is at work. */
  get usage(): Usage | undefined {
    return this.#host.tally.usage
  }

  readonly child = async (
    request: ChildRequest,
    signal = this.signal,
    asking?: CallingToolCall,
  ): Promise<ChildResult> => {
    checkChildRequest(request)
    return await this.#host.startChild(request, signal, asking)
  }

  readonly judge = async (request: JudgeRequest, signal = this.signal): Promise<AssistantMessage> => {
    checkJudgeRequest(request)
    return await this.#host.askJudge(request, signal)
  }

  readonly metric = (name: string, value: number, asking?: CallingToolCall): void => {
    if (!Number.isFinite(value)) {
      throw new MillraceError('env_invalid', `metric "${name}" must be a finite number, not ${value}`)
    }
    const { environment } = this.#host.services
    if (ownRewardNames(environment).includes(name) || groupRewardNames(environment).includes(name)) {
      // The results show one number by each name, and that of the reward comes first.
      throw new MillraceError(
        'env_invalid',
        `metric "${name}" has the name of the reward "${name}", which would hide it: choose another name`,
      )
    }
    this.report({ metrics: { [nameable('metric', name)]: value } }, asking)
  }

  readonly note = (name: string, value: Json, asking?: CallingToolCall): void => {
    this.report({ notes: { [nameable('note', name)]: plainJson(name, value) } }, asking)
  }

  report({ metrics, notes }: ToolReports, asking?: CallingToolCall): void {
    const keepers: readonly ToolReports[] = [this.#liveRollout, ...this.#askedBy, ...(asking ? [asking.reports] : [])]
    for (const keeper of keepers) {
      if (metrics) Object.assign((keeper.metrics ??= {}), metrics)
      if (notes) Object.assign((keeper.notes ??= {}), notes)
    }
  }
}

/** What children and judges were asked for and have not answered yet. All requests end with the one who asked, awaited or not. */
export class PendingRequests {
  readonly #underWay = new Set<AbortScope>()
  #isOver = false

  async run<Result>(signal: AbortSignal, ask: (signal: AbortSignal) => Promise<Result>): Promise<Result> {
    using scope = new AbortScope(signal)
    // Code that nobody waits for may still ask after the end; its request is abandoned at once.
    if (this.#isOver) scope.abort(abandonedError())
    this.#underWay.add(scope)
    try {
      return await ask(scope.signal)
    } finally {
      this.#underWay.delete(scope)
    }
  }

  abortRequests(): void {
    for (const scope of this.#underWay) scope.abort(abandonedError())
  }

  close(): void {
    this.#isOver = true
    this.abortRequests()
  }
}

function abandonedError(): MillraceError {
  return new MillraceError('cancelled', 'its caller has ended')
}
