import {
  ownRewardNames,
  type ChildRequest,
  type ChildResult,
  type FeedbackContext,
  type JudgeRequest,
  scoreRollout,
  type Verification,
} from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import type { Session } from '../../inference/index.ts'
import { type StopClock, thrownBy, withAbort } from '../../kit/index.ts'
import type { AssistantMessage, Message, ToolReports } from '../../schema/index.ts'
import { type CallingToolCall, endsAttempt } from '../../tools/index.ts'
import type { LiveRollout, RunServices } from '../environment/live-rollout.ts'
import {
  RecordedServers,
  recordedSession,
  type RecordedVerdict,
  type RecordedVerification,
  verificationEvent,
} from '../recording/recording.ts'
import { RewardTime, scoreOnThread } from '../reward/reward-time.ts'
import { agentEndedError, type AgentTime, type BudgetMeter, type Tally } from './budget.ts'
import type { JudgeAsker } from './judge.ts'
import { LiveContext, type ContextHost } from './live-context.ts'

export interface VerifyHost {
  readonly id: string
  readonly services: RunServices
  readonly liveRollout: LiveRollout
  readonly session: Session
  readonly time: AgentTime
  readonly budget: BudgetMeter
  readonly tally: Tally
  readonly messages: readonly Message[]
  readonly answer: string | null
  readonly askedBy: readonly ToolReports[]
  readonly turns: number
  readonly signal: AbortSignal
  readonly context: LiveContext
  readonly tools: { recallChildren(idPart: string): void }
  startChildAs(
    request: ChildRequest,
    signal: AbortSignal,
    start: { readonly idPart: string; readonly askedBy: readonly ToolReports[]; readonly isForReward: boolean },
  ): Promise<ChildResult>
  askJudge(request: JudgeRequest, signal: AbortSignal, special?: Partial<JudgeAsker>): Promise<AssistantMessage>
  record(name: string, data: object): void
  endRollout(error: MillraceError): void
}

/** What a reward, and then `feedback`, get while the agent still works. */
class VerificationContext extends LiveContext implements FeedbackContext<unknown, unknown, unknown> {
  reward = 0
  rewards: Readonly<Record<string, number>> = {}
}

/** Scores the conversation of an agent before its end, or says again what the recording says of it. */
export class Verifier {
  readonly #host: VerifyHost
  /** What is recorded and not yet heard again, in order. */
  readonly #recorded: RecordedVerification[]

  constructor(host: VerifyHost) {
    this.#host = host
    const { job } = host.liveRollout
    this.#recorded = [...(job.recording?.verifications?.[host.id.slice(job.id.length)] ?? [])]
  }

  async verify(): Promise<Verification> {
    const { session, budget, signal, services } = this.#host
    if (budget.isStopped) throw agentEndedError()
    signal.throwIfAborted()
    if (ownRewardNames(services.environment).length === 0) {
      const message = `${services.environment.name} has rewards of groups only, which verify() cannot ask: give it one of a rollout's own`
      throw new MillraceError('env_invalid', message)
    }
    const at = session.leaf ?? -1
    const index = this.#recorded.findIndex((each) => each.at === at)
    const [recorded] = index === -1 ? [] : this.#recorded.splice(index, 1)
    const verified = recorded ? this.#recall(recorded) : await this.#score(at)
    if (!recorded?.isJournalled) {
      const { isJournalled: _isJournalled, ...noted } = verified
      this.#host.record(verificationEvent, noted)
    }
    const { reward, rewards, feedback } = verified
    return { reward, rewards, ...(feedback !== undefined && { feedback }) }
  }

  #recall(recorded: RecordedVerification): RecordedVerification {
    const { tools, tally, context } = this.#host
    tools.recallChildren(this.#childIdPart(recorded.at))
    for (const judged of recorded.judged ?? []) tally.addJudgeCall(judged)
    if (recorded.reports) context.report(recorded.reports)
    return recorded
  }

  async #score(at: number): Promise<RecordedVerification> {
    const { services, time, budget, signal } = this.#host
    this.#throwRecordedEnd()
    const { limits } = services.settings
    using reward = new RewardTime({ limits, wallMs: budget.wallMsLeft + limits.tailMs, signal })
    reward.clock.watch()
    // Scoring is not the agent's work, so its clock stands still; the wall clock does not.
    budget.startWait()
    try {
      return await time.spentIn('verify', () => withAbort(this.#scoreWithin(reward, at), reward.scope.signal))
    } catch (error) {
      // Components that still run have nobody to score for.
      reward.scope.abort(error)
      signal.throwIfAborted()
      if (endsAttempt(error)) throw error
      const failure = MillraceError.from(error, 'reward_failed')
      throw this.#failed(new MillraceError('reward_failed', failure.rawMessage, { data: failure.data, cause: error }))
    } finally {
      budget.endWait()
    }
  }

  async #scoreWithin(time: RewardTime, at: number): Promise<RecordedVerification> {
    const { services, liveRollout } = this.#host
    const { environment, rewardPool, blockedRewards } = services
    const { clock } = time
    const reports: ToolReports = {}
    const judged: Pick<RecordedVerdict, 'model' | 'usage' | 'cost'>[] = []
    const context = this.#contextOf(time, { at, reports, judged })
    context.turnToReward('completed', time)
    const score = await scoreRollout(environment, context, {
      onBlocked: blockedRewards.note,
      ...(rewardPool && { scoreOnThread: scoreOnThread(rewardPool, { context, liveRollout, clock }) }),
    })
    context.reward = score.reward
    const scores = Object.entries(score.rewards).map(([name, component]) => [name, component.score])
    context.rewards = { ...Object.fromEntries(scores), ...score.metrics }
    const feedback = await this.#feedback(context)
    return {
      at,
      reward: context.reward,
      rewards: context.rewards,
      ...(feedback !== undefined && { feedback }),
      ...((reports.metrics || reports.notes) && { reports }),
      ...(judged.length > 0 && { judged }),
    }
  }

  async #feedback(context: VerificationContext): Promise<string | undefined> {
    const { environment } = this.#host.services
    if (!environment.feedback) {
      return context.reward >= 1 ? undefined : `The reward of this answer is ${context.reward}, so it is not right yet.`
    }
    let said: unknown
    try {
      said = await environment.feedback(context)
    } catch (error) {
      throw thrownBy('feedback', error, 'reward_failed')
    }
    if (said === undefined || typeof said === 'string') return said
    const message = `feedback: it must return a text, or undefined if the answer is good, not a value of type ${typeof said}`
    throw new MillraceError('reward_failed', message)
  }

  #contextOf(
    { clock, scope }: { readonly clock: StopClock; readonly scope: RewardTime['scope'] },
    {
      at,
      reports,
      judged,
    }: { at: number; reports: ToolReports; judged: Pick<RecordedVerdict, 'model' | 'usage' | 'cost'>[] },
  ): VerificationContext {
    const host = this.#host
    const { liveRollout, tally } = host
    const { servers } = liveRollout.tools
    const special: Partial<JudgeAsker> = {
      clock,
      verdicts: undefined,
      isForVerification: true,
      tally: {
        addJudgeCall: ({ model, usage, cost }) => {
          judged.push({ model, usage, cost })
          tally.addJudgeCall({ model, usage, cost })
        },
      },
    }
    const idPart = this.#childIdPart(at)
    const asking = (call?: CallingToolCall): readonly ToolReports[] => (call ? [reports, call.reports] : [reports])
    const asked: ContextHost = {
      services: host.services,
      budget: host.budget,
      messages: host.messages,
      answer: host.answer,
      tally,
      // The clock of the reward stands still instead.
      onServerAway: () => () => {},
      startChild: (request, signal, call) => {
        const askedBy = [...host.askedBy, ...asking(call)]
        return host.startChildAs(request, signal, { idPart, askedBy, isForReward: true })
      },
      askJudge: (request, signal) => host.askJudge(request, signal, special),
    }
    const noted = servers instanceof RecordedServers ? servers.forVerification() : servers
    const shown = { ...liveRollout, tools: { ...liveRollout.tools, servers: noted } }
    return new VerificationContext(asked, shown, scope, [...host.askedBy, reports])
  }

  /** In a replay, and in a rollout that a limit had ended, whatever is not recorded ends the agent as it had. */
  #throwRecordedEnd(): void {
    const { id, liveRollout } = this.#host
    const { recording } = liveRollout.job
    if (recording?.end?.code === 'reward_failed') throw this.#failed(MillraceError.fromWire(recording.end))
    const end = recordedSession(liveRollout.job, id)?.end
    if (end) throw MillraceError.fromWire(end)
  }

  /** Returns the error, after it has ended the rollout: an agent may not go on as if its answer were wrong. */
  #failed(error: MillraceError): MillraceError {
    this.#host.endRollout(error)
    return error
  }

  /** Children of two verifications must not be taken for each other's, nor for the agent's own. */
  #childIdPart(at: number): string {
    return `t${this.#host.turns}v${at}`
  }
}
