import type { Agent } from '../env/index.ts'
import { requireWhole } from './replies.ts'

/** One reply, with the tools declared. Its calls are proposals: none is made, and the reward reads them from the last message. */
export function nonExecuting(): Agent {
  return async ({ turn, update }) => {
    const { message, finishReason } = await turn()
    requireWhole(finishReason)
    await update(message)
  }
}
