import { z } from 'zod'
import { checkOptions, mustBe, wholeNumber } from '../env/index.ts'
import type { Agent, AgentContext } from '../env/index.ts'
import { inChild } from './children.ts'
import { lastReply, saidIn, tagged, transcript } from './replies.ts'
import { toolLoop } from './tool-loop.ts'
import { agentSchema, requireNames, textSchema, watching } from './watching.ts'

export interface ReflectOptions {
  /** How often it answers, at most; 2 if not given. */
  readonly turns?: number
  /** The agent that answers each time; the tool loop if not given. */
  readonly agent?: Agent
  /** The critic's model; the run's model if not given. */
  readonly model?: string
  /** What the critic must look at, beside what every critic does. */
  readonly instructions?: string
  /** The agent that writes the critique; the tool loop if not given. */
  readonly critic?: Agent
  /** The tools that the critic may use; none if not given. */
  readonly tools?: readonly string[]
}

const optionShape = {
  turns: wholeNumber(1).optional(),
  agent: agentSchema.optional(),
  model: textSchema('the name of a model').optional(),
  instructions: textSchema('a text').optional(),
  critic: agentSchema.optional(),
  tools: z.array(z.string(), mustBe('a list of names of tools')).optional(),
}

const criticRole = `You review the work of an assistant. You are given its conversation and its last answer. Look for mistakes in facts, reasoning and calculation, for parts of the request that are not answered, and for instructions that are not followed. Check for yourself whatever you can.

If the answer is right and complete, reply with the word APPROVED alone. Otherwise say point by point what is wrong and how to mend it. Do not write the new answer.`

/**
 * Answers, has the answer criticised, and answers again with the critique, until the critic approves or the turns are used up.
 * The critic is a child, which sees the conversation as a text; it may have another model, and tools.
 */
export function reflect(options: ReflectOptions = {}): Agent {
  checkOptions('reflect()', optionShape, options)
  const { turns = 2, agent = toolLoop() } = options
  return async (original) => {
    requireNames(original, 'reflect()', options)
    const { context, hasEnded } = watching(original)
    for (let turn = 1; ; turn += 1) {
      await agent(context)
      // Nobody would read a critique of the last answer.
      if (hasEnded() || turn === turns) return
      const critique = await criticise(context, options)
      if (isApproval(critique)) return
      context.append({ role: 'user', content: `${feedback}\n\n${critique}` })
    }
  }
}

const feedback = 'A reviewer has read your answer. Revise it, and reply with the whole revised answer. The review:'

async function criticise(
  { child, messages }: AgentContext,
  { model, instructions, critic = toolLoop(), tools = [] }: ReflectOptions,
): Promise<string> {
  const answer = lastReply(messages)
  const before = transcript(messages.filter((message) => message !== answer))
  const given = `${tagged('conversation', before)}\n${tagged('answer', saidIn(answer))}`
  const request = {
    prompt: [
      {
        role: 'system' as const,
        content: instructions === undefined ? criticRole : `${criticRole}\n\n${instructions}`,
      },
      { role: 'user' as const, content: given },
    ],
    tools,
    ...(model !== undefined && { model }),
  }
  return await inChild(child, request, async (own) => {
    await critic(own)
    return saidIn(lastReply(own.messages))
  })
}

/** A critic who says nothing has nothing to object to. */
function isApproval(critique: string): boolean {
  const lines = critique.split('\n').filter((line) => line.trim() !== '')
  return lines.length === 0 || [lines[0], lines.at(-1)].some((line) => /^\W*APPROVED\W*$/.test(line ?? ''))
}
