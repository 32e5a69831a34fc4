import { APIUserAbortError as AnthropicAbort } from '@anthropic-ai/sdk'
import { APIUserAbortError as OpenAiAbort } from 'openai'
import { describe, expect, test } from 'vitest'
import { anyClient } from '../support/gateway/official-clients.ts'
import { sharedGateway } from '../support/gateway/gateway-over-simulator.ts'

const apis = ['chat', 'responses', 'messages'] as const

describe.for(apis)('a client that disconnects aborts the backend of %s at once', (backend) => {
  // So slow that no reply ends by itself while a test waits.
  const gateway = sharedGateway({ api: backend, simulator: { tokensPerSecond: 2, spread: 0 } })

  test.for(apis)('during a stream of %s, by its signal or by leaving the loop', async (api) => {
    const { simulator } = gateway()
    for (const how of ['signal', 'break'] as const) {
      const session = await gateway().startSession()
      const clients = { openai: session.openai(), anthropic: session.anthropic() }
      const departure = new AbortController()
      const before = simulator.stats.aborted
      for await (const piece of anyClient[api].stream(clients, { signal: departure.signal })) {
        if (piece === '') continue
        if (how === 'break') break
        departure.abort()
      }
      await expect.poll(() => simulator.stats).toMatchObject({ aborted: before + 1, inFlight: 0 })
      await expect.poll(() => session.view()).toMatchObject({ interactions: 0, discarded: 1, used: { concurrent: 0 } })
      const lost = {
        sampled: true,
        discarded: { why: 'client_gone' },
        message: { content: expect.stringMatching(/./) },
      }
      await expect.poll(async () => (await session.nodes()).at(-1)).toMatchObject(lost)
    }
  })

  test.for(apis)('while it waits for a whole reply of %s', async (api) => {
    const { simulator } = gateway()
    const session = await gateway().startSession()
    const clients = { openai: session.openai(), anthropic: session.anthropic() }
    const departure = new AbortController()
    const { aborted } = simulator.stats
    const reply = anyClient[api].whole(clients, { signal: departure.signal })
    await expect.poll(() => simulator.stats.inFlight).toBe(1)
    departure.abort()
    await expect(reply).rejects.toBeInstanceOf(api === 'messages' ? AnthropicAbort : OpenAiAbort)
    await expect.poll(() => simulator.stats).toMatchObject({ aborted: aborted + 1, inFlight: 0 })
    await expect.poll(() => session.view()).toMatchObject({ interactions: 0, used: { concurrent: 0 } })
  })
})
