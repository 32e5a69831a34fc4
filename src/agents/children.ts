import { MillraceError } from '../errors/index.ts'
import type { AgentContext, Budget, ChildRequest } from '../env/index.ts'

type Child = AgentContext['child']

/** Work in a conversation beside the rollout's own, with its tools. If it fails, the caller fails as it did. */
export async function inChild<Result>(
  child: Child,
  request: Omit<ChildRequest, 'agent'>,
  work: (own: AgentContext) => Promise<Result>,
): Promise<Result> {
  let done: { readonly result: Result } | undefined
  let thrown: unknown
  const { outcome } = await child({
    ...request,
    agent: async (own) => {
      try {
        done = { result: await work(own) }
      } catch (error) {
        thrown = error
        throw error
      }
    },
  })
  if (done && outcome === 'completed') return done.result
  throw thrown ?? new MillraceError('agent_failed', `a conversation that this rollout depends on ended as ${outcome}`)
}

/** The same without tools. */
export function aside<Result>(
  child: Child,
  request: Omit<ChildRequest, 'agent' | 'tools'>,
  work: (own: AgentContext) => Promise<Result>,
): Promise<Result> {
  return inChild(child, { ...request, tools: [] }, work)
}

/** A part of the turns and tokens that are left. It allows at least one turn. */
export function shareOf({ turnsLeft, tokensLeft }: Budget, part: number): NonNullable<ChildRequest['limits']> {
  const share = (left: number): number => Math.max(1, Math.floor(left * part))
  return { maxTurns: share(turnsLeft), ...(tokensLeft !== Infinity && { maxTokens: share(tokensLeft) }) }
}
