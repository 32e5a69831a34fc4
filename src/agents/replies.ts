import { MillraceError } from '../errors/index.ts'
import type { AgentContext, ChildRequest } from '../env/index.ts'
import type { FinishReason, Message } from '../schema/index.ts'

/** A reply that hit its length limit ends the rollout as `max_tokens`: what follows a cut thought is not the policy's own. */
export function requireWhole(finishReason: FinishReason): void {
  if (finishReason !== 'length') return
  throw new MillraceError('budget_exhausted', 'the reply reached its length limit', { data: { limit: 'tokens' } })
}

/** Work in a conversation beside the rollout's own, without tools. If it fails, the caller fails as it did. */
export async function aside<Result>(
  child: AgentContext['child'],
  request: Omit<ChildRequest, 'agent' | 'tools'>,
  work: (own: AgentContext) => Promise<Result>,
): Promise<Result> {
  let done: { readonly result: Result } | undefined
  let thrown: unknown
  const { outcome } = await child({
    ...request,
    tools: [],
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

/** A conversation with a text added to its last user message: many chat templates do not allow two in a row. */
export function withRequest(messages: readonly Message[], text: string): readonly Message[] {
  const last = messages.at(-1)
  if (last?.role !== 'user') return [...messages, { role: 'user', content: text }]
  const content =
    typeof last.content === 'string'
      ? `${last.content}\n\n${text}`
      : [...last.content, { type: 'text' as const, text: `\n\n${text}` }]
  return [...messages.slice(0, -1), { ...last, content }]
}

/** Thoughts that a server leaves in the text of a reply are not part of what it says. */
export function withoutThoughts(text: string): string {
  const said = text.split('</think>').at(-1) ?? ''
  return said.includes('<think>') ? '' : said.trim()
}
