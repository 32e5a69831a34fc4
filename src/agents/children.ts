import type { AgentContext, Budget, ChildRequest } from '../env/index.ts'
import type { MillraceError } from '../errors/index.ts'
import { outcomes } from '../schema/index.ts'

type Child = AgentContext['child']

/** What work in a child came to, or how the child used up its budget before. */
export type ChildWork<Result> = { readonly result: Result } | { readonly spent: MillraceError }

/**
 * Work in a conversation beside the rollout's own, with its tools. A child that used up its budget may be done without. With any
 * other failure the caller fails, too: an answer that was given without the child must not be scored.
 */
export async function tryInChild<Result>(
  child: Child,
  request: Omit<ChildRequest, 'agent'>,
  work: (own: AgentContext) => Promise<Result>,
): Promise<ChildWork<Result>> {
  const done = Promise.withResolvers<Result>()
  const { outcome, error } = await child({ ...request, agent: async (own) => done.resolve(await work(own)) })
  if (!error) return { result: await done.promise }
  if (outcomes[outcome].scored) return { spent: error }
  throw error
}

/** The same for work that the caller cannot do without: however it fails, the caller fails as it did. */
export async function inChild<Result>(
  child: Child,
  request: Omit<ChildRequest, 'agent'>,
  work: (own: AgentContext) => Promise<Result>,
): Promise<Result> {
  const end = await tryInChild(child, request, work)
  if ('spent' in end) throw end.spent
  return end.result
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
export function shareOf(
  { turnsLeft, tokensLeft }: Pick<Budget, 'turnsLeft' | 'tokensLeft'>,
  part: number,
): NonNullable<ChildRequest['limits']> {
  // A 49th of 49 is 1, although 49 * (1 / 49) is a little less.
  const share = (left: number): number => Math.max(1, Math.floor(left * part * (1 + Number.EPSILON)))
  return { maxTurns: share(turnsLeft), ...(tokensLeft !== Infinity && { maxTokens: share(tokensLeft) }) }
}
