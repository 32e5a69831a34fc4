import { z } from 'zod'
import { checkOptions, mustBe } from '../env/index.ts'
import type { Agent, AgentContext } from '../env/index.ts'
import type { Message } from '../schema/index.ts'
import { type Attempt, choices, type Choice, chooseBy } from './choose.ts'
import { type ChildWork, shareOf, tryInChild } from './children.ts'
import { lastReply, saidIn } from './replies.ts'
import { toolLoop } from './tool-loop.ts'
import { agentSchema, requireNames, textSchema } from './watching.ts'

export interface ParallelOptions {
  /** How many attempts are made side by side; 4 if not given. */
  readonly attempts?: number
  /**
   * How an answer is made of theirs: the most frequent (`vote`, if not given), the one with the highest reward (`verify`), the
   * one that a model selects (`select`), or one that a model merges of all (`merge`).
   */
  readonly choose?: Choice
  /** The agent that makes an attempt; the tool loop if not given. */
  readonly agent?: Agent
  /** The model that selects or merges; the run's model if not given. */
  readonly model?: string
}

/** Each attempt is a conversation of its own, with its own calls to the model. */
const maxAttempts = 64
const expected = `a whole number from 1 to ${maxAttempts}`

const optionShape = {
  attempts: z.int(mustBe(expected)).min(1, mustBe(expected)).max(maxAttempts, mustBe(expected)).optional(),
  choose: z.enum(choices, mustBe(`one of ${choices.join(', ')}`)).optional(),
  agent: agentSchema.optional(),
  model: textSchema('the name of a model').optional(),
}

/**
 * Makes several attempts side by side and keeps one answer. Each attempt is a child that starts from the conversation so far,
 * with an equal part of what is left of turns and tokens; a model that selects or merges has a part, too. The answer that is kept stands in the rollout's own conversation.
 * An attempt that uses up its part is left out; if all do, the rollout ends as the first one did.
 */
export function parallel(options: ParallelOptions = {}): Agent {
  checkOptions('parallel()', optionShape, options)
  return async (context) => {
    requireNames(context, 'parallel()', { model: options.model })
    for (;;) {
      const attempts = await attemptsOf(context, options)
      const { model } = options
      const message = await chooseBy(options.choose ?? 'vote', attempts, { context, model })
      context.append(message)
      const changes = await context.update(message)
      if (changes?.messages) context.append(...changes.messages)
      if (changes?.end || !changes?.messages?.length) return
    }
  }
}

async function attemptsOf(
  { child, messages, budget, signal }: AgentContext,
  { attempts = 4, choose = 'vote', agent = toolLoop() }: ParallelOptions,
): Promise<readonly Attempt[]> {
  const chooserTurns = choose === 'select' || choose === 'merge' ? 1 : 0
  const turnsLeft = budget.turnsLeft - chooserTurns
  // Each attempt needs a turn.
  const count = Math.max(1, Math.min(attempts, turnsLeft))
  const tokensLeft = (budget.tokensLeft * count) / (count + chooserTurns)
  const limits = shareOf({ turnsLeft, tokensLeft }, 1 / count)
  const prompt: readonly Message[] = [...messages]
  const attempt = (): Promise<ChildWork<Attempt>> =>
    tryInChild(child, { prompt, limits }, async (own) => {
      await agent(own)
      const message = lastReply(own.messages)
      const reward = choose === 'verify' ? (await own.verify()).reward : 0
      return { message, answer: saidIn(message), reward }
    })
  const ended = await Promise.all(Array.from({ length: count }, attempt))
  signal.throwIfAborted()
  const made = ended.flatMap((end) => ('result' in end ? [end.result] : []))
  const [first] = ended
  if (made.length === 0 && first && 'spent' in first) throw first.spent
  return made
}
