import { z } from 'zod'
import { isFunction, mustBe } from '../env/index.ts'
import type { Agent, AgentContext } from '../env/index.ts'

/** An option that is an agent. */
export const agentSchema = z.custom<Agent>(isFunction, mustBe('an agent, such as toolLoop()'))

/** An option that is a text. */
export function textSchema(expected: string): z.ZodType<string> {
  return z.string(mustBe(expected)).min(1, mustBe(expected))
}

/** The same context, which notices that the environment ends the rollout: then the agent that has another at work must end, too. */
export function watching(context: AgentContext): { readonly context: AgentContext; readonly hasEnded: () => boolean } {
  let hasEnded = false
  const update: AgentContext['update'] = async (reply) => {
    const changes = await context.update(reply)
    if (changes?.end) hasEnded = true
    return changes
  }
  // A proxy, because most fields of a context are getters.
  const watched = new Proxy(context, {
    get: (target, key) => (key === 'update' ? update : (Reflect.get(target, key) as unknown)),
  })
  return { context: watched, hasEnded: () => hasEnded }
}
