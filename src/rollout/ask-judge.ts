import type { JudgeRequest } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import type { CallHooks } from '../inference/index.ts'
import type { AssistantMessage } from '../schema/index.ts'
import type { StopClock } from '../kit/index.ts'
import type { Engine } from './engine.ts'
import type { Tally } from './tally.ts'

/**
 * One question to a judge model, through the same model layer as the policy. It has permits of its own before it comes to
 * the model's: however many rollouts are being scored, no more than that many ask at once. What it said is kept as an
 * event.
 */
export async function askJudge(
  request: JudgeRequest,
  options: {
    engine: Engine
    rollout: string
    attempt: number
    tally: Tally
    /** Stands still while the question waits for its turn. */
    clock: StopClock | undefined
    /** Which rollout the question belongs to, for whoever traces it. */
    trace: object | undefined
    signal: AbortSignal
  },
): Promise<AssistantMessage> {
  const { engine, rollout, attempt, tally, clock, trace, signal } = options
  const model = engine.model(request.model ?? engine.settings.judge)
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
    await engine.judgePermits.acquire(signal)
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
