import { z } from 'zod'
import { isFunction, mustBe } from '../env/index.ts'
import type { Agent, AgentContext } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'

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
  return { context: changed(context, { update }), hasEnded: () => hasEnded }
}

/** The same context with other tools, which its turns declare. */
export function withTools(context: AgentContext, tools: AgentContext['tools']): AgentContext {
  const turn: AgentContext['turn'] = (options) => context.turn({ tools: tools.definitions, ...options })
  return changed(context, { tools, turn })
}

/** A proxy, because most fields of a context are getters. */
function changed(context: AgentContext, changes: Partial<AgentContext>): AgentContext {
  return new Proxy(context, {
    get: (target, key) => Reflect.get(key in changes ? changes : target, key) as unknown,
  })
}

/** Checks names of tools and models in the options of an agent before it works: a misspelt one would fail only a child. */
export function requireNames(
  { requireNames: check }: AgentContext,
  of: string,
  names: Parameters<AgentContext['requireNames']>[0],
): void {
  try {
    check(names)
  } catch (error) {
    throw new MillraceError(
      'env_invalid',
      `the options of ${of}: ${MillraceError.from(error, 'env_invalid').rawMessage}`,
    )
  }
}
