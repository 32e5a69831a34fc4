import { expect, test } from 'vitest'
import { HttpBackend, modelConfigSchema } from '../../src/inference/index.ts'
import type { BackendReply, BackendRequest } from '../../src/apis/backend.ts'
import { CollectingSink } from '../support/inference/collecting-sink.ts'
import type { ToolDefinition } from '../../src/schema/index.ts'
import { SimulatorServer } from '../../src/simulator/index.ts'

const calculator: ToolDefinition = {
  type: 'function',
  function: {
    name: 'calculator',
    parameters: { type: 'object', properties: { expression: { type: 'string' } }, required: ['expression'] },
  },
}

const ask = (index: number, more: Partial<BackendRequest>): BackendRequest => ({
  messages: [{ role: 'user', content: `What is ${index} + 17?` }],
  tools: index % 2 === 0 ? [calculator] : [],
  sampling: { ...(index % 7 === 0 && { maxTokens: 6 }) },
  captureTokens: true,
  sessionId: `session-${index}`,
  retry: 0,
  signal: new AbortController().signal,
  ...more,
})

function openBackend(url: string, api: 'chat' | 'responses'): HttpBackend {
  const config = modelConfigSchema.parse({ name: 'sim', api, backends: [{ url }] })
  const [backend] = config.backends
  if (!backend) throw new Error('there is no backend')
  return new HttpBackend(config, backend, {})
}

/** The reply, or nothing if the backend failed. */
const settled = (reply: Promise<BackendReply>): Promise<BackendReply | undefined> => reply.catch(() => undefined)

test.each(['chat', 'responses'] as const)(
  'a sink receives the reply of a complete stream and the beginning of a broken one: %s',
  async (api) => {
    const faults = { cut: 0.2, malformed: 0.1, serverError: 0.1 }
    await using good = await SimulatorServer.start({ imitate: 'millrace', reasoning: true, weightVersion: '5' })
    await using bad = await SimulatorServer.start({ imitate: 'millrace', reasoning: true, weightVersion: '5', faults })
    await using goodBackend = openBackend(good.url, api)
    await using badBackend = openBackend(bad.url, api)
    let broken = 0
    for (let index = 0; index < 60; index += 1) {
      const whole = await goodBackend.send(ask(index, { stream: false }))
      const sink = new CollectingSink((_event, resume) => {
        setImmediate(resume)
        return false
      })
      const reply = await settled(badBackend.send(ask(index, { stream: true, sink })))
      if (reply) {
        expect(reply.message).toEqual(whole.message)
        expect(reply.tokens).toEqual(whole.tokens)
        // An empty text and none are the same to a sink: neither is said.
        expect(sink.message).toEqual({ ...whole.message, content: whole.message.content || null })
        expect(sink.events.at(-1)?.isEnd).toBe(true)
        expect(sink.partials).toEqual([])
      } else if (sink.events.length > 0) {
        broken += 1
        const [partial] = sink.partials
        expect(sink.partials).toHaveLength(1)
        expect(partial?.message.content ?? '').toBe(sink.message.content ?? '')
        expect(whole.message.content ?? '').toContain(partial?.message.content ?? '')
        const sampled = partial?.tokens?.ids ?? new Int32Array()
        expect(whole.tokens?.ids.subarray(0, sampled.length) ?? new Int32Array()).toEqual(sampled)
      }
    }
    expect(broken).toBeGreaterThan(5)
  },
)
