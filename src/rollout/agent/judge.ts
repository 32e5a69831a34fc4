import { hash } from 'node:crypto'
import type { JudgeRequest } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { type ModelClient, withUsage } from '../../inference/index.ts'
import type { StopClock } from '../../kit/index.ts'
import type { AssistantMessage } from '../../schema/index.ts'
import type { Journal } from '../../store/index.ts'
import type { RunServices } from '../environment/live-rollout.ts'
import { attemptEvent } from '../schedule/journal-entries.ts'
import { judgeCallEvent, ofVerification, type RecordedVerdict, type VerdictReader } from '../recording/recording.ts'
import type { Tally } from './budget.ts'

export interface JudgeAsker {
  readonly services: Pick<RunServices, 'settings' | 'judgePermits' | 'model'> & {
    readonly journal: Pick<Journal, 'append'>
  }
  readonly rollout: string
  readonly attempt: number
  readonly tally: Pick<Tally, 'addJudgeCall'>
  /** The reward's clock, which stands still while the question waits for its turn. */
  readonly clock: StopClock | undefined
  readonly trace: object | undefined
  readonly verdicts: VerdictReader | undefined
  readonly isForVerification?: boolean
  readonly signal: AbortSignal
}

/** An attempt that goes on asks again, as its reward may have failed on the verdict; a replay does not ask. */
export async function askJudge(request: JudgeRequest, asker: JudgeAsker): Promise<AssistantMessage> {
  const { services, rollout, attempt, tally, verdicts, isForVerification } = asker
  const model = services.model(request.model ?? services.settings.judge)
  const question = questionDigest(model.name, request)
  const verdict: RecordedVerdict = verdicts?.take(question) ?? {
    request: question,
    model: model.name,
    ...(await askModel(model, request, asker)),
  }
  tally.addJudgeCall(verdict)
  const noted = isForVerification ? { ...verdict, ...ofVerification } : verdict
  services.journal.append(attemptEvent({ id: rollout, attempt }, judgeCallEvent, noted))
  return verdict.reply
}

/** Takes a judge permit before the model's own limits, however many rollouts are being scored. */
async function askModel(
  model: ModelClient,
  request: JudgeRequest,
  { services, rollout, clock, trace, signal }: JudgeAsker,
): Promise<Pick<RecordedVerdict, 'reply' | 'usage' | 'cost'>> {
  clock?.startWait()
  try {
    await services.judgePermits.acquire(signal)
  } finally {
    clock?.endWait()
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
      {
        signal,
        onWaitStart: () => clock?.startWait(),
        onWaitEnd: () => clock?.endWait(),
        onFailedTry: (ms) => clock?.giveBack(ms),
      },
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

export function questionDigest(model: string, { messages, temperature, maxTokens }: JudgeRequest): string {
  return hash('sha256', JSON.stringify([model, messages, temperature ?? null, maxTokens ?? null]), 'base64url')
}
