import type { Agent } from '../env/index.ts'
import { requireWhole } from './replies.ts'

/** One reply, without tools. The environment's `update` hears it; a message that it answers with is not asked about. */
export function singleTurn(): Agent {
  return async ({ turn, update }) => {
    const { message, finishReason } = await turn({ tools: [] })
    requireWhole(finishReason)
    await update(message)
  }
}
