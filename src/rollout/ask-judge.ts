import type { JudgeRequest } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { withUsage, type CallHooks } from '../inference/index.ts'
import type { AssistantMessage } from '../schema/index.ts'
import type { StopClock } from '../kit/index.ts'
import type { Journal } from '../store/index.ts'
import { attemptEvent } from './event-entries.ts'
import type { RunServices } from './run-services.ts'
import { questionDigest, type RecordedVerdict, type VerdictReader } from './replay-verdicts.ts'
import type { Tally } from './tally.ts'

/** The name of the event that keeps what a judge said. */
export const judgeCallEvent = 'judge-call'

/** The parts of a run that a question to a judge needs. */
export type JudgeServices = Pick<RunServices, 'settings' | 'judgePermits' | 'model'> & {
  readonly journal: Pick<Journal, 'append'>
}

/**
 * One question to a judge model, through the same model layer as the policy. A question takes a judge permit before it comes to
 * the model's own limits: however many rollouts are being scored, no more than that many ask at once. The verdict is kept as an
 * event, with a digest of the question: a replay does not ask again. An attempt that goes on does ask again, as its reward may
 * have failed on the verdict; the first verdict's price stays part of what the attempt costs.
 */
export async function askJudge(
  request: JudgeRequest,
  options: {
    services: JudgeServices
    rollout: string
    attempt: number
    tally: Tally
    /** How many verdicts earlier sittings of the attempt had left it. */
    earlier?: number | undefined
    /** The reward's clock, which stands still while the question waits for its turn. */
    clock: StopClock | undefined
    /** Which rollout the question belongs to, for tracing. */
    trace: object | undefined
    /** Recorded verdicts, by question. */
    verdicts: VerdictReader | undefined
    signal: AbortSignal
  },
): Promise<AssistantMessage> {
  const { services, rollout, attempt, tally, earlier, clock, trace, verdicts, signal } = options
  const model = services.model(request.model ?? services.settings.judge)
  const question = questionDigest(model.name, request)
  const keep = (verdict: RecordedVerdict): AssistantMessage => {
    tally.addJudgeCall(verdict.usage, verdict.cost)
    services.journal.append(attemptEvent({ id: rollout, attempt }, judgeCallEvent, { ...verdict, earlier }))
    return verdict.reply
  }
  const recorded = verdicts?.take(question)
  if (recorded) return keep(recorded)
  const hooks: CallHooks = clock
    ? {
        signal,
        onWaitStart: () => clock.startWait(),
        onWaitEnd: () => clock.endWait(),
        onFailedTry: (ms) => clock.giveBack(ms),
      }
    : { signal }
  hooks.onWaitStart?.()
  try {
    await services.judgePermits.acquire(signal)
  } finally {
    hooks.onWaitEnd?.()
  }
  try {
    const reply = await model.call(
      {
        messages: request.messages,
        tools: [],
        sampling: {
          ...(request.temperature !== undefined && { temperature: request.temperature }),
          ...(request.maxTokens !== undefined && { maxTokens: request.maxTokens }),
        },
        captureTokens: false,
        sessionId: `${rollout}-judge`,
        ...(trace && { trace }),
      },
      hooks,
    )
    if (reply.status !== 'complete') {
      throw new MillraceError('reward_failed', `the judge ${model.name} gave no verdict: ${reply.error.rawMessage}`, {
        cause: reply.error,
      })
    }
    const { message, usage, cost } = withUsage(reply, request.messages, model.price)
    return keep({ request: question, model: model.name, reply: message, usage, cost })
  } finally {
    services.judgePermits.release()
  }
}
