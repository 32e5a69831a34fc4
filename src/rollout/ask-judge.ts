import type { JudgeRequest } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import type { AssistantMessage } from '../schema/index.ts'
import type { Engine } from './engine.ts'
import type { Tally } from './tally.ts'

/**
 * One question to a judge model: same model layer as the policy, but with permits of its own, so that judging can never
 * starve sampling, nor the other way round. What it said is kept as an event.
 */
export async function askJudge(
  request: JudgeRequest,
  options: { engine: Engine; rollout: string; attempt: number; tally: Tally; signal: AbortSignal },
): Promise<AssistantMessage> {
  const { engine, rollout, attempt, tally, signal } = options
  const model = engine.model(request.model ?? engine.settings.judge)
  await engine.judgePermits.acquire(signal)
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
      },
      { signal },
    )
    if (reply.status !== 'complete') {
      throw new MillraceError('reward_failed', `the judge ${model.name} gave no verdict: ${reply.error.rawMessage}`, {
        cause: reply.error,
      })
    }
    tally.addJudgeCall(reply.usage, reply.cost)
    engine.journal.append({
      kind: 'event',
      rollout,
      attempt,
      name: 'judge-call',
      at: Date.now(),
      data: JSON.stringify({ model: model.name, reply: reply.message, usage: reply.usage, cost: reply.cost }),
    })
    return reply.message
  } finally {
    engine.judgePermits.release()
  }
}
