import { BadRequestError as AnthropicBadRequest } from '@anthropic-ai/sdk'
import { BadRequestError as OpenAiBadRequest } from 'openai'
import { describe, expect, test } from 'vitest'
import { modelName as model, sharedGateway, type TestSession } from '../support/gateway/gateway-over-simulator.ts'
import { answer, question } from '../support/gateway/calculator-tools.ts'

const user = { role: 'user', content: question } as const

const clients = {
  chat: (session: TestSession, fields: object) =>
    session.openai().chat.completions.create({ model, messages: [user], ...fields }),
  responses: (session: TestSession, fields: object) =>
    session.openai().responses.create({ model, input: question, ...fields }),
  messages: (session: TestSession, fields: object) =>
    session.anthropic().messages.create({ model, max_tokens: 100, messages: [user], ...fields }),
}

const bash = { type: 'bash_20250124', name: 'bash' }
const document = { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'Read this.' } }

/** The client's API, the backend's, what is asked for, and what the refusal calls it. */
const refused = [
  ['chat', 'responses', 'stop', { stop: ['x'] }],
  ['chat', 'responses', 'seed', { seed: 7 }],
  ['chat', 'messages', 'seed', { seed: 7 }],
  ['chat', 'messages', 'messages[0].name', { messages: [{ ...user, name: 'Ada' }] }],
  ['chat', 'messages', 'audio', { audio: { voice: 'alloy', format: 'mp3' } }],
  ['chat', 'messages', 'response_format json_object', { response_format: { type: 'json_object' } }],
  ['chat', 'responses', 'logprobs', { logprobs: true }],
  ['responses', 'messages', 'text.format json_object', { text: { format: { type: 'json_object' } } }],
  ['responses', 'chat', 'local_shell', { tools: [{ type: 'local_shell' }] }],
  ['responses', 'messages', 'local_shell', { tools: [{ type: 'local_shell' }] }],
  ['responses', 'chat', 'include', { include: ['message.output_text.logprobs'] }],
  ['responses', 'chat', 'background', { background: true }],
  // Its answer would be a promise of a reply, which nobody could fetch: not a reply that was cut off, to be asked for again.
  ['responses', 'responses', 'background', { background: true }],
  ['messages', 'responses', 'stop_sequences', { stop_sequences: ['x'] }],
  ['messages', 'chat', 'bash_20250124', { tools: [bash] }],
  ['messages', 'chat', 'document', { messages: [{ role: 'user', content: [document] }] }],
  ['messages', 'responses', 'document', { messages: [{ role: 'user', content: [document] }] }],
] as const

describe('a request field that the API of the backend does not support is refused by name', () => {
  const backends = {
    chat: sharedGateway({ api: 'chat' }),
    responses: sharedGateway({ api: 'responses' }),
    messages: sharedGateway({ api: 'messages' }),
  }

  test.for(refused)('a client of %s, a backend of %s: %s', async ([client, backend, name, fields]) => {
    const gateway = backends[backend]()
    const session = await gateway.startSession()
    const before = gateway.simulator.stats.requests
    const failed: unknown = await clients[client](session, fields).then(
      () => undefined,
      (thrown: unknown) => thrown,
    )
    expect(failed).toBeInstanceOf(client === 'messages' ? AnthropicBadRequest : OpenAiBadRequest)
    expect(failed).toMatchObject({ status: 400, message: expect.stringContaining(name) })
    // Nothing was asked, and nothing is recorded that was not asked.
    expect(gateway.simulator.stats.requests).toBe(before)
    expect(await session.nodes()).toEqual([])
  })

  test('request fields are passed on if client and backend use the same API', async () => {
    const [overChat, overMessages] = [await backends.chat().startSession(), await backends.messages().startSession()]
    const stopped = await clients.chat(overChat, { stop: [answer], seed: 7, logprobs: true })
    expect(stopped.choices[0]?.message.content).not.toContain(answer)
    expect(stopped.choices[0]?.logprobs?.content?.length).toBe(stopped.usage?.completion_tokens)
    const message = await clients.messages(overMessages, { stop_sequences: [answer] })
    expect(JSON.stringify(message.content)).not.toContain(answer)
  })
})
