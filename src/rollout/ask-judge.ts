import type { JudgeRequest } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { withUsage, type CallHooks, type ModelClient } from '../inference/index.ts'
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

/** Who asks a judge, and how. */
interface JudgeAsker {
  readonly services: JudgeServices
  readonly rollout: string
  readonly attempt: number
  readonly tally: Tally
  /** How many verdicts earlier sittings of the attempt had left it. */
  readonly earlier?: number | undefined
  /** The reward's clock, which stands still while the question waits for its turn. */
  readonly clock: StopClock | undefined
  /** Which rollout the question belongs to, for tracing. */
  readonly trace: object | undefined
  /** Recorded verdicts, by question. */
  readonly verdicts: VerdictReader | undefined
  readonly signal: AbortSignal
}

/**
 * One question to a judge model, through the same model layer as the policy. The verdict is kept as an event, with a digest of the
 * question: a replay does not ask again. An attempt that goes on does ask again, as its reward may have failed on the verdict; the
 * first verdict's price stays part of what the attempt costs.
 */
export async function askJudge(request: JudgeRequest, asker: JudgeAsker): Promise<AssistantMessage> {
  const { services, rollout, attempt, tally, earlier, verdicts } = asker
  const model = services.model(request.model ?? services.settings.judge)
  const question = questionDigest(model.name, request)
  const verdict: RecordedVerdict = verdicts?.take(question) ?? {
    request: question,
    model: model.name,
    ...(await askModel(model, request, asker)),
  }
  tally.addJudgeCall(verdict)
  services.journal.append(attemptEvent({ id: rollout, attempt }, judgeCallEvent, { ...verdict, earlier }))
  return verdict.reply
}

/**
 * A question takes a judge permit before it comes to the model's own limits: however many rollouts are being scored, no more than
 * that many ask at once.
 */
async function askModel(
  model: ModelClient,
  request: JudgeRequest,
  { services, rollout, clock, trace, signal }: JudgeAsker,
): Promise<Pick<RecordedVerdict, 'reply' | 'usage' | 'cost'>> {
  const hooks = hooksOf(clock, signal)
  hooks.onWaitStart?.()
  try {
    await services.judgePermits.acquire(signal)
  } finally {
    hooks.onWaitEnd?.()
  }
  try {
    const { messages, temperature, maxTokens } = request
    const sampling = {
      ...(temperature !== undefined && { temperature }),
      ...(maxTokens !== undefined && { maxTokens }),
    }
    const sessionId = `${rollout}-judge`
    const reply = await model.call(
      { messages, tools: [], sampling, captureTokens: false, sessionId, ...(trace && { trace }) },
      hooks,
    )
    if (reply.status !== 'complete') {
      throw new MillraceError('reward_failed', `the judge ${model.name} gave no verdict: ${reply.error.rawMessage}`, {
        cause: reply.error,
      })
    }
    const { message, usage, cost } = withUsage(reply, messages, model.price)
    return { reply: message, usage, cost }
  } finally {
    services.judgePermits.release()
  }
}

function hooksOf(clock: StopClock | undefined, signal: AbortSignal): CallHooks {
  if (!clock) return { signal }
  return {
    signal,
    onWaitStart: () => clock.startWait(),
    onWaitEnd: () => clock.endWait(),
    onFailedTry: (ms) => clock.giveBack(ms),
  }
}
