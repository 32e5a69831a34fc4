import type Anthropic from '@anthropic-ai/sdk'
import { betaZodTool } from '@anthropic-ai/sdk/helpers/beta/zod'
import { zodOutputFormat } from '@anthropic-ai/sdk/helpers/zod'
import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import {
  GatewayOverSimulator,
  modelName as model,
  oneBranch,
  sharedGateway,
} from '../support/gateway/gateway-over-simulator.ts'
import { messagesReply } from '../support/inference/messages-server.ts'
import { ScriptedServer, sendJson } from '../support/inference/scripted-server.ts'
import {
  answer,
  calculate,
  calculator,
  calculatorParameters,
  delegate,
  delegated,
  delegateParameters,
  image,
  listAnswer,
  listQuestion,
  question,
  runTool,
} from '../support/gateway/calculator-tools.ts'

const max_tokens = 1000
const messages = [{ role: 'user', content: question }] as const satisfies Anthropic.MessageParam[]
const tools: Anthropic.Tool[] = [calculator, delegate].map(({ name, description, schema }) => ({
  name,
  description,
  input_schema: { ...schema, required: [...schema.required] },
}))

describe.for(['messages', 'chat', 'responses'] as const)('the anthropic client over a backend of %s', (api) => {
  const gateway = sharedGateway({ api, simulator: { reasoning: true } })

  test.for(['key', 'url'] as const)('create, with the session named by %s', async (way) => {
    const session = await gateway().startSession()
    const message = await session.anthropic(way).messages.create({
      model,
      max_tokens,
      system: [{ type: 'text', text: 'Be brief.', cache_control: { type: 'ephemeral' } }],
      messages,
      metadata: { user_id: 'somebody' },
    })
    expect(textIn(message)).toContain(answer)
    expect(message).toMatchObject({ type: 'message', role: 'assistant', model, stop_reason: 'end_turn' })
    expect(message.usage.output_tokens).toBeGreaterThan(0)
    expect(await oneBranch(session)).toEqual(['system', 'user', 'assistant'])
    expect((await session.nodes()).at(-1)?.call).toMatchObject({ api: 'messages', replyId: message.id })
  })

  test('create as a stream, with complete and ordered events', async () => {
    const session = await gateway().startSession()
    const stream = await session.anthropic().messages.create({ model, max_tokens, messages, stream: true })
    const events: Anthropic.RawMessageStreamEvent[] = []
    for await (const event of stream) events.push(event)
    expect(events[0]?.type).toBe('message_start')
    expect(events.slice(-2).map(({ type }) => type)).toEqual(['message_delta', 'message_stop'])
    const starts = events.flatMap((event) => (event.type === 'content_block_start' ? [event.content_block.type] : []))
    expect(starts).toEqual(['thinking', 'text'])
    const text = events.map((event) =>
      event.type === 'content_block_delta' && event.delta.type === 'text_delta' ? event.delta.text : '',
    )
    expect(text.join('')).toContain(answer)
  })

  test('stream() with its final message', async () => {
    const session = await gateway().startSession()
    const client = session.anthropic('url')
    const stream = client.messages.stream({ model, max_tokens, messages })
    let text = ''
    stream.on('text', (delta) => (text += delta))
    const final = await stream.finalMessage()
    expect(text).toContain(answer)
    expect(textIn(final)).toBe(text)
    expect(final.stop_reason).toBe('end_turn')
    expect(final.usage.output_tokens).toBe((await session.nodes()).at(-1)?.call?.usage.output)
    const whole = await client.messages.create({ model, max_tokens, messages })
    expect(whole.content).toMatchObject(final.content.map(({ type }) => ({ type })))
    expect(textIn(whole)).toBe(text)
  })

  test.for([
    [question, answer, ['user', 'assistant', 'tool', 'assistant']],
    [listQuestion, listAnswer, ['user', 'assistant', 'tool', 'tool', 'tool', 'assistant']],
  ] as const)("the client's own tool runner: %s", async ([content, expected, roles]) => {
    const runnable = [
      betaZodTool({ ...described(calculator), inputSchema: calculatorParameters, run: calculate }),
      betaZodTool({ ...described(delegate), inputSchema: delegateParameters, run: delegated }),
    ]
    for (const stream of [false, true]) {
      const session = await gateway().startSession()
      const runner = session.anthropic().beta.messages.toolRunner({
        model,
        max_tokens,
        messages: [{ role: 'user', content }],
        tools: runnable,
        stream,
      })
      expect(textIn(await runner.runUntilDone())).toContain(expected)
      expect(await oneBranch(session)).toEqual(roles)
    }
  })

  test('tool_choice, and single calls with disable_parallel_tool_use', async () => {
    const session = await gateway().startSession()
    const client = session.anthropic()
    const list = [{ role: 'user' as const, content: listQuestion }]
    const hello = [{ role: 'user' as const, content: 'Hello!' }]
    const asked = { model, max_tokens, tools }
    const one = await client.messages.create({
      ...asked,
      messages: list,
      tool_choice: { type: 'auto', disable_parallel_tool_use: true },
    })
    expect(callsIn(one)).toEqual([delegate.name])
    expect(one.stop_reason).toBe('tool_use')
    const none = await client.messages.create({ ...asked, messages, tool_choice: { type: 'none' } })
    expect(textIn(none)).toContain(answer)
    const any = await client.messages.create({ ...asked, messages: hello, tool_choice: { type: 'any' } })
    expect(callsIn(any)).toHaveLength(1)
    const tool_choice = { type: 'tool', name: delegate.name } as const
    const named = await client.messages.create({ ...asked, messages: hello, tool_choice })
    expect(callsIn(named)).toEqual([delegate.name])
  })

  test('thinking that is requested and sent back', async () => {
    const session = await gateway().startSession()
    const client = session.anthropic()
    const asked = { model, max_tokens: 4000, tools, thinking: { type: 'enabled', budget_tokens: 2000 } } as const
    const conversation: Anthropic.MessageParam[] = []
    for (const [index, content] of [question, listQuestion, 'What is 5 + 6?'].entries()) {
      conversation.push({ role: 'user', content })
      for (let turn = 0; turn < 2; turn += 1) {
        const request = { ...asked, messages: conversation }
        // Streamed or not, the next request has the same history.
        const message = await (index === 1
          ? client.messages.stream(request).finalMessage()
          : client.messages.create(request))
        expect(message.content[0]).toMatchObject({ type: 'thinking', signature: expect.any(String) })
        conversation.push({ role: 'assistant', content: message.content })
        const results = toolResults(message)
        if (results.length > 0) conversation.push({ role: 'user', content: results })
      }
    }
    const tools3 = ['assistant', 'tool', 'tool', 'tool', 'assistant']
    const tool1 = ['assistant', 'tool', 'assistant']
    expect(await oneBranch(session)).toEqual(['user', ...tool1, 'user', ...tools3, 'user', ...tool1])
    expect((await session.nodes()).at(-1)?.message.content).toContain('11')
  })

  test('parsed structured output', async () => {
    const session = await gateway().startSession()
    const client = session.anthropic()
    const person = z.object({ name: z.string(), age: z.int(), tags: z.array(z.string()) })
    const output_config = { format: zodOutputFormat(person) }
    const whole = await client.messages.parse({ model, max_tokens, messages, output_config })
    expect(whole.parsed_output).not.toBeNull()
    expect(person.parse(whole.parsed_output)).toEqual(whole.parsed_output)
    const final = await client.messages.stream({ model, max_tokens, messages, output_config }).finalMessage()
    expect(final.parsed_output).toEqual(whole.parsed_output)
  })

  test('images in messages and in tool results', async () => {
    const session = await gateway().startSession()
    const { mediaType: media_type, data } = image
    const picture = { type: 'image', source: { type: 'base64', media_type, data } } as const
    const message = await session.anthropic().messages.create({
      model,
      max_tokens,
      messages: [{ role: 'user', content: [picture, { type: 'text', text: question }] }],
    })
    expect(textIn(message)).toContain(answer)
    expect((await session.nodes())[0]?.message.content).toMatchObject([
      { type: 'image_url', image_url: { url: image.dataUrl } },
      { type: 'text', text: question },
    ])
  })

  test('a token limit ends a reply with stop reason max_tokens', async () => {
    const session = await gateway().startSession()
    const client = session.anthropic()
    const cut = await client.messages.create({ model, max_tokens: 2, messages })
    expect(cut).toMatchObject({ stop_reason: 'max_tokens', usage: { output_tokens: 2 } })
    const final = await client.messages.stream({ model, max_tokens: 2, messages }).finalMessage()
    expect(final).toMatchObject({ stop_reason: 'max_tokens', usage: { output_tokens: 2 } })
  })
})

test('newer fields of the API reach a Messages backend unchanged', async () => {
  await using server = await ScriptedServer.start((response) =>
    sendJson(response, messagesReply([{ type: 'text', text: 'Hello.' }])),
  )
  await using gateway = await GatewayOverSimulator.start({
    api: 'messages',
    models: { scripted: { backends: [{ url: server.url }] } },
  })
  const session = await gateway.startSession()
  const message = await session.anthropic().beta.messages.create({
    model: 'scripted',
    max_tokens,
    messages,
    speed: 'fast',
    betas: ['fast-mode-2026-02-01'],
  })
  expect(textIn(message)).toBe('Hello.')
  const { headers, body } = server.requests.at(-1) ?? { headers: {}, body: '{}' }
  expect(headers).toMatchObject({ 'anthropic-beta': 'fast-mode-2026-02-01', 'anthropic-version': expect.any(String) })
  expect(JSON.parse(body)).toEqual({ model: 'scripted', max_tokens, messages, speed: 'fast' })
})

test('threads of the client, which sends the whole conversation each time', async () => {
  await using gateway = await GatewayOverSimulator.start()
  const session = await gateway.startSession()
  const thread = session.anthropic().beta.messages.thread({ model, max_tokens, system: 'Be brief.' })
  expect(textIn(await thread.send({ role: 'user', content: question }))).toContain(answer)
  expect(textIn(await thread.send({ role: 'user', content: 'What is 5 + 6?' }))).toContain('11')
  expect(await oneBranch(session)).toEqual(['system', 'user', 'assistant', 'user', 'assistant'])
})

function described({ name, description }: { readonly name: string; readonly description: string }) {
  return { name, description }
}

type AnyMessage = { readonly content: readonly (Anthropic.ContentBlock | Anthropic.Beta.BetaContentBlock)[] }

function textIn({ content }: AnyMessage): string {
  return content.map((block) => (block.type === 'text' ? block.text : '')).join('')
}

function callsIn({ content }: AnyMessage): string[] {
  return content.flatMap((block) => (block.type === 'tool_use' ? [block.name] : []))
}

function toolResults({ content }: AnyMessage): Anthropic.ToolResultBlockParam[] {
  return content.flatMap((block) => {
    if (block.type !== 'tool_use') return []
    const { id, name, input } = block
    return [{ type: 'tool_result' as const, tool_use_id: id, content: runTool(name, input) }]
  })
}
