import type OpenAI from 'openai'
import { zodFunction, zodResponseFormat } from 'openai/helpers/zod'
import type { ChatCompletionMessageParam } from 'openai/resources/chat/completions'
import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import {
  GatewayOverSimulator,
  modelName as model,
  oneBranch,
  repliesWithTokens,
  sharedGateway,
} from '../support/gateway/gateway-over-simulator.ts'
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

const calculatorTool = {
  type: 'function',
  function: { name: calculator.name, description: calculator.description, parameters: calculator.schema },
} as const
const delegateTool = {
  type: 'function',
  function: { name: delegate.name, description: delegate.description, parameters: delegate.schema },
} as const

const messages = [{ role: 'user', content: question }] as const satisfies ChatCompletionMessageParam[]

describe.for(['chat', 'messages', 'responses'] as const)('the openai client, chat, over a backend of %s', (api) => {
  const gateway = sharedGateway({ api, simulator: { reasoning: true } })

  test.for(['key', 'url'] as const)('create, with the session named by %s', async (way) => {
    const session = await gateway().startSession()
    const completion = await session.openai(way).chat.completions.create({
      model,
      messages: [{ role: 'system', content: 'Be brief.' }, ...messages],
      temperature: 0.5,
      max_completion_tokens: 100,
    })
    const [choice] = completion.choices
    expect(choice?.message.content).toContain(answer)
    expect(choice).toMatchObject({ finish_reason: 'stop', message: { role: 'assistant', refusal: null } })
    expect(completion).toMatchObject({ object: 'chat.completion', model })
    expect(completion.usage?.total_tokens).toBeGreaterThan(0)
    expect(await oneBranch(session)).toEqual(['system', 'user', 'assistant'])
    expect((await session.nodes()).at(-1)?.call).toMatchObject({ api: 'chat', replyId: completion.id })
  })

  test('create as a stream', async () => {
    const session = await gateway().startSession()
    const client = session.openai()
    const stream = await client.chat.completions.create({
      model,
      messages,
      stream: true,
      stream_options: { include_usage: true },
    })
    let text = ''
    let usage: OpenAI.CompletionUsage | null | undefined
    const reasons = new Set<string | null | undefined>()
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? ''
      reasons.add(chunk.choices[0]?.finish_reason)
      usage = chunk.usage
    }
    expect(text).toContain(answer)
    expect(reasons).toContain('stop')
    expect(usage?.completion_tokens).toBe((await session.nodes()).at(-1)?.call?.usage.output)
    const whole = await client.chat.completions.create({ model, messages })
    expect(text).toBe(whole.choices[0]?.message.content)
  })

  test('stream() with its events and final completion', async () => {
    const session = await gateway().startSession()
    const stream = session.openai('url').chat.completions.stream({ model, messages })
    let text = ''
    stream.on('content', (delta) => (text += delta))
    const final = await stream.finalChatCompletion()
    expect(final.choices[0]).toMatchObject({ message: { content: text }, finish_reason: 'stop' })
    expect(text).toContain(answer)
    expect(await oneBranch(session)).toEqual(['user', 'assistant'])
  })

  test.for([false, true])('runTools until the final answer, streamed: %s', async (stream) => {
    const session = await gateway().startSession()
    const tool = zodFunction({ name: calculator.name, parameters: calculatorParameters, function: calculate })
    const { completions } = session.openai().chat
    const asked = { model, messages: [...messages], tools: [tool] }
    const runner = stream ? completions.runTools({ ...asked, stream }) : completions.runTools(asked)
    expect(await runner.finalContent()).toContain(answer)
    expect(await oneBranch(session)).toEqual(['user', 'assistant', 'tool', 'assistant'])
  })

  test('parallel calls, and single calls with parallel_tool_calls: false', async () => {
    const session = await gateway().startSession()
    const { completions } = session.openai().chat
    const asked = { model, messages: [{ role: 'user' as const, content: listQuestion }], tools: [delegateTool] }
    const one = await completions.create({ ...asked, parallel_tool_calls: false })
    expect(one.choices[0]?.message.tool_calls).toHaveLength(1)
    const other = await gateway().startSession()
    const tool = zodFunction({ name: delegate.name, parameters: delegateParameters, function: delegated })
    const runner = other.openai().chat.completions.runTools({ ...asked, tools: [tool], stream: true })
    expect(await runner.finalContent()).toContain(listAnswer)
    expect(await oneBranch(other)).toEqual(['user', 'assistant', 'tool', 'tool', 'tool', 'assistant'])
  })

  test('tool_choice: none, required and by name', async () => {
    const session = await gateway().startSession()
    const { completions } = session.openai().chat
    const tools = [calculatorTool, delegateTool]
    const none = await completions.create({ model, messages, tools, tool_choice: 'none' })
    expect(none.choices[0]?.message).toMatchObject({ content: expect.stringContaining(answer) })
    const hello = [{ role: 'user' as const, content: 'Hello!' }]
    const required = await completions.create({ model, messages: hello, tools, tool_choice: 'required' })
    expect(required.choices[0]?.message.tool_calls).toHaveLength(1)
    const named = { type: 'function', function: { name: delegate.name } } as const
    const chosen = await completions.create({ model, messages: hello, tools, tool_choice: named })
    expect(chosen.choices[0]).toMatchObject({
      finish_reason: 'tool_calls',
      message: { tool_calls: [{ type: 'function', function: { name: delegate.name } }] },
    })
  })

  test('parsed structured output', async () => {
    const session = await gateway().startSession()
    const { completions } = session.openai().chat
    const person = z.object({ name: z.string(), age: z.int().min(18).max(99), tags: z.array(z.string()) })
    const response_format = zodResponseFormat(person, 'person')
    const whole = await completions.parse({ model, messages, response_format })
    const final = await completions.stream({ model, messages, response_format }).finalChatCompletion()
    const parsed = whole.choices[0]?.message.parsed
    expect(parsed).not.toBeNull()
    expect(person.parse(parsed)).toEqual(parsed)
    expect(final.choices[0]?.message.parsed).toEqual(parsed)
  })

  test('images and text parts', async () => {
    const session = await gateway().startSession()
    const completion = await session.openai().chat.completions.create({
      model,
      messages: [
        {
          role: 'user',
          content: [
            { type: 'image_url', image_url: { url: image.dataUrl, detail: 'low' } },
            { type: 'text', text: question },
          ],
        },
      ],
    })
    expect(completion.choices[0]?.message.content).toContain(answer)
    expect((await session.nodes())[0]?.message.content).toMatchObject([
      { type: 'image_url', image_url: { url: image.dataUrl } },
      { type: 'text', text: question },
    ])
  })

  test('a conversation built by hand is one branch', async () => {
    const session = await gateway().startSession()
    const { completions } = session.openai().chat
    const conversation: ChatCompletionMessageParam[] = []
    for (const content of [question, listQuestion, 'What is 5 + 6?']) {
      conversation.push({ role: 'user', content })
      for (let turn = 0; turn < 4; turn += 1) {
        const tools = [calculatorTool, delegateTool]
        const { choices } = await completions.create({ model, messages: conversation, tools })
        const { message } = choices[0] ?? { message: undefined }
        if (!message) throw new Error('no choice')
        conversation.push(message)
        if (!message.tool_calls) break
        for (const call of message.tool_calls) {
          if (call.type !== 'function') throw new Error(`a call of type ${call.type}`)
          const result = runTool(call.function.name, JSON.parse(call.function.arguments))
          conversation.push({ role: 'tool', tool_call_id: call.id, content: result })
        }
      }
    }
    expect(await oneBranch(session)).toEqual(conversation.map(({ role }) => role))
    expect(conversation.at(-1)).toMatchObject({ role: 'assistant', content: expect.stringContaining('11') })
  })

  test('a token limit ends a reply with finish reason length', async () => {
    const session = await gateway().startSession()
    const { completions } = session.openai().chat
    const cut = await completions.create({ model, messages, max_tokens: 2 })
    expect(cut.choices[0]?.finish_reason).toBe('length')
    expect(cut.usage?.completion_tokens).toBe(2)
  })
})

test('tokens of every reply are recorded, and the client sees only the fields it requested', async () => {
  await using gateway = await GatewayOverSimulator.start()
  const session = await gateway.startSession()
  const { completions } = session.openai().chat
  const plain = await completions.create({ model, messages })
  expect(JSON.stringify(plain)).not.toContain('token_ids')
  expect(plain.choices[0]?.logprobs).toBeNull()
  const final = await completions.stream({ model, messages }).finalChatCompletion()
  expect(JSON.stringify(final)).not.toContain('token_ids')
  const asked = await completions.create({ model, messages, logprobs: true })
  expect(asked.choices[0]?.logprobs?.content).toHaveLength(asked.usage?.completion_tokens ?? 0)
  expect(await repliesWithTokens(session)).toHaveLength(3)
})
