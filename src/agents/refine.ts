import { checkOptions, wholeNumber } from '../env/index.ts'
import type { Agent } from '../env/index.ts'
import { toolLoop } from './tool-loop.ts'
import { agentSchema, watching } from './watching.ts'

export interface RefineOptions {
  /** How often it answers, at most; 3 if not given. */
  readonly turns?: number
  /** The agent that answers each time; the tool loop if not given. */
  readonly agent?: Agent
}

const optionShape = { turns: wholeNumber(1).optional(), agent: agentSchema.optional() }

/** Answers, has the answer verified, and answers again with what it was told, until the answer is good or the turns are used up. */
export function refine(options: RefineOptions = {}): Agent {
  checkOptions('refine()', optionShape, options)
  const { turns = 3, agent = toolLoop() } = options
  return async (original) => {
    const { context, hasEnded } = watching(original)
    for (let turn = 1; ; turn += 1) {
      await agent(context)
      // The last answer is judged by the reward at the end.
      if (hasEnded() || turn === turns) return
      const { feedback } = await context.verify()
      if (feedback === undefined) return
      context.append({ role: 'user', content: feedback })
    }
  }
}
