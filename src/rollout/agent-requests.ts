import type { ChildRequest, ChildResult, JudgeRequest } from '../env/index.ts'
import type { StopClock } from '../kit/index.ts'
import type { AssistantMessage, ToolReports } from '../schema/index.ts'
import type { AskingCall } from '../tools/index.ts'
import type { AgentCalls } from './agent-calls.ts'
import { askJudge } from './ask-judge.ts'
import type { RunServices } from './run-services.ts'
import { PendingRequests } from './pending-requests.ts'
import type { LiveRollout } from './live-rollout.ts'
import type { Tally } from './tally.ts'

/** The agent that asks children and judges. */
export interface RequestsHost {
  readonly id: string
  readonly services: RunServices
  readonly liveRollout: LiveRollout
  readonly tally: Tally
  readonly tools: AgentCalls
  readonly trace: object | undefined
  /** How many verdicts earlier sittings had left this agent's attempt. */
  readonly earlierVerdicts: number | undefined
  /** For a child: the reports of the tool calls that asked for it, the outermost first. */
  readonly askedBy: readonly ToolReports[]
  runChild(request: ChildRequest, start: ChildStart): Promise<ChildResult>
}

/** What a child is started with, beside its request. */
export interface ChildStart {
  /** See `childPlace`. */
  readonly place: string
  readonly signal: AbortSignal
  readonly askedBy: readonly ToolReports[]
}

/** What one agent asks of others: children to work for it, and judges. */
export class AgentRequests extends PendingRequests {
  /** Set while the reward runs: the reward's clock, which stands still while a question to a judge waits in a queue. */
  rewardClock: StopClock | undefined
  readonly #host: RequestsHost

  constructor(host: RequestsHost) {
    super()
    this.#host = host
  }

  startChild(request: ChildRequest, signal: AbortSignal, asking?: AskingCall): Promise<ChildResult> {
    const host = this.#host
    const place = host.tools.placeOf(asking?.call)
    const askedBy = asking ? [...host.askedBy, asking.reports] : host.askedBy
    return this.run(signal, (own) => host.runChild(request, { place, signal: own, askedBy }))
  }

  askJudge(request: JudgeRequest, signal: AbortSignal): Promise<AssistantMessage> {
    const { id: rollout, services, liveRollout, tally, trace, earlierVerdicts: earlier } = this.#host
    const { attempt } = liveRollout.job
    const { verdicts } = liveRollout
    const asked = { services, rollout, attempt, tally, earlier, clock: this.rewardClock, trace, verdicts }
    return this.run(signal, (own) => askJudge(request, { ...asked, signal: own }))
  }
}
