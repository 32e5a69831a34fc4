import { MillraceError } from '../errors/index.ts'
import type { Agent } from '../env/index.ts'

/**
 * The standard agent: a model turn, then all its tool calls, then the next turn, until the model stops calling tools, the
 * environment says so, or a limit is reached. A reply that hit its length limit ends the rollout as `max_tokens`:
 * what follows a cut thought is not the policy's own.
 */
export function toolLoop(): Agent {
  return async ({ turn, tools, append, update }) => {
    for (;;) {
      const { message, finishReason, calls } = await turn()
      if (finishReason === 'length') {
        throw new MillraceError('budget_exhausted', 'the reply reached its length limit', { data: { limit: 'tokens' } })
      }
      if (calls.length > 0) append(...(await tools.call(calls)))
      const changes = await update(message)
      if (changes?.messages) append(...changes.messages)
      if (changes?.end) return
      if (calls.length === 0 && !changes?.messages?.length) return
    }
  }
}
