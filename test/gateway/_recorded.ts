import { expect } from 'vitest'
import type { MessageNode } from '../../src/schema/index.ts'
import type { TestSession } from './_gateway-over-simulator.ts'

/** The roles of a conversation without a fork, in order: each message is recorded once and follows the one before it. */
export async function oneBranch(session: TestSession): Promise<string[]> {
  const nodes = await session.nodes()
  expect(nodes.map(({ parent }) => parent)).toEqual(nodes.map((_node, index) => (index === 0 ? null : index - 1)))
  return nodes.map(({ message }) => message.role)
}

/** The replies of a session, each with all of its tokens. */
export async function repliesWithTokens(session: TestSession): Promise<MessageNode[]> {
  const replies = (await session.nodes()).filter(({ sampled }) => sampled)
  for (const { tokens, call } of replies) {
    const output = call?.usage.output
    expect({ ids: tokens?.ids.length, logprobs: tokens?.logprobs.length }).toEqual({ ids: output, logprobs: output })
    expect(tokens?.promptIds?.length).toBe(call?.usage.input)
    expect(output).toBeGreaterThan(0)
  }
  return replies
}
