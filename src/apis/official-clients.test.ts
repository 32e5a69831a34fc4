import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { expect, test } from 'vitest'
import { MillraceError } from '../errors/index.ts'
import type { BackendReply } from './backend.ts'
import { chatServer } from './chat/write-reply.ts'
import { messagesServer } from './messages/write-reply.ts'
import { headOf, serveReplies, type Answer } from '../../test/support/apis/reply-server.ts'
import { RandomConversation } from '../../test/support/apis/random-conversation.ts'

const usage = { calls: 1, input: 30, cachedInput: 10, output: 20, reasoning: 5 }

const toolReply: BackendReply = {
  message: {
    role: 'assistant',
    content: 'Two at once.',
    reasoning_content: 'I need both.',
    tool_calls: [
      { id: 'call_a', type: 'function', function: { name: 'weather', arguments: '{"city": "Graz"}' } },
      { id: 'call_b', type: 'function', function: { name: 'clock', arguments: '' } },
    ],
  },
  finishReason: 'tool_calls',
  usage,
}

function openai(url: string): OpenAI {
  return new OpenAI({ baseURL: `${url}/v1`, apiKey: 'key', maxRetries: 0 })
}

function anthropic(url: string): Anthropic {
  return new Anthropic({ baseURL: url, apiKey: 'key', maxRetries: 0 })
}

const question = [{ role: 'user', content: 'What now?' }] as const

test('openai: a whole completion with reasoning and parallel calls', async () => {
  await using server = await serveReplies(chatServer, () => ({ reply: toolReply }))
  const completion = await openai(server.url).chat.completions.create({ model: 'm', messages: [...question] })
  expect(completion.choices[0]).toMatchObject({
    message: { role: 'assistant', content: 'Two at once.', reasoning_content: 'I need both.', refusal: null },
    finish_reason: 'tool_calls',
  })
  expect(completion.choices[0]?.message.tool_calls).toEqual(toolReply.message.tool_calls)
  expect(completion.usage).toEqual({
    prompt_tokens: 30,
    completion_tokens: 20,
    total_tokens: 50,
    prompt_tokens_details: { cached_tokens: 10 },
    completion_tokens_details: { reasoning_tokens: 5 },
  })
})

test('openai: a stream holds usage only if requested, and null until then', async () => {
  await using server = await serveReplies(chatServer, () => ({ reply: toolReply }))
  for (const wanted of [true, false]) {
    const stream = await openai(server.url).chat.completions.create({
      model: 'm',
      messages: [...question],
      stream: true,
      ...(wanted && { stream_options: { include_usage: true } }),
    })
    const usages: unknown[] = []
    for await (const chunk of stream) usages.push(chunk.usage)
    const last = usages.pop()
    expect(last).toEqual(wanted ? expect.objectContaining({ total_tokens: 50 }) : undefined)
    expect(usages.every((each) => each === (wanted ? null : undefined))).toBe(true)
  }
})

test('openai: a structured reply is parsed by the client', async () => {
  const message = { role: 'assistant', content: '{"answer":42}' } as const
  await using server = await serveReplies(chatServer, () => ({ reply: { message, finishReason: 'stop', usage } }))
  const schema = { type: 'object', properties: { answer: { type: 'number' } } }
  const completion = await openai(server.url).chat.completions.parse({
    model: 'm',
    messages: [...question],
    response_format: { type: 'json_schema', json_schema: { name: 'reply', schema, strict: true } },
  })
  expect(JSON.parse(completion.choices[0]?.message.content ?? '')).toEqual({ answer: 42 })
  expect(server.requests[0]?.responseFormat).toEqual({ kind: 'json_schema', name: 'reply', schema, strict: true })
})

test('openai: the message assembled from a stream equals the whole reply', async () => {
  const conversations = Array.from({ length: 25 }, (_, seed) => answerOf(seed))
  await using server = await serveReplies(chatServer, (request, number) => conversations[number - 1] ?? fail(request))
  const client = openai(server.url)
  for (const { reply } of conversations) {
    const stream = client.chat.completions.stream({
      model: 'm',
      messages: [...question],
      stream_options: { include_usage: true },
    })
    // A field that the client does not know: it keeps the last piece of it, so the pieces are put together here.
    let reasoning = ''
    stream.on('chunk', (chunk) => {
      const delta: object | undefined = chunk.choices[0]?.delta
      if (delta && 'reasoning_content' in delta) reasoning += String(delta.reasoning_content)
    })
    const { choices, usage: counted } = await stream.finalChatCompletion()
    const request = server.requests.at(-1) ?? fail(reply)
    const whole = JSON.parse(JSON.stringify(chatServer.whole(headOf(chatServer, request), reply)))
    const { message, finish_reason } = choices[0] ?? fail(choices)
    expect(chatMessageOf({ ...message, reasoning_content: reasoning })).toBe(chatMessageOf(whole.choices[0].message))
    expect(finish_reason).toBe(whole.choices[0].finish_reason)
    expect(counted).toEqual(whole.usage)
  }
})

test('anthropic: a whole message with thinking and parallel calls', async () => {
  await using server = await serveReplies(messagesServer, () => ({ reply: toolReply }))
  const message = await anthropic(server.url).messages.create({ model: 'm', max_tokens: 9, messages: [...question] })
  expect(message).toMatchObject({ type: 'message', role: 'assistant', model: 'm', stop_reason: 'tool_use' })
  expect(message.content).toMatchObject([
    { type: 'thinking', thinking: 'I need both.' },
    { type: 'text', text: 'Two at once.' },
    { type: 'tool_use', id: 'call_a', name: 'weather', input: { city: 'Graz' } },
    { type: 'tool_use', id: 'call_b', name: 'clock', input: {} },
  ])
  expect(message.usage).toMatchObject({ input_tokens: 20, cache_read_input_tokens: 10, output_tokens: 20 })
})

test('anthropic: the message assembled from a stream equals the whole reply', async () => {
  const conversations = Array.from({ length: 25 }, (_, seed) => answerOf(seed))
  await using server = await serveReplies(
    messagesServer,
    (request, number) => conversations[number - 1] ?? fail(request),
  )
  const client = anthropic(server.url)
  for (const { reply } of conversations) {
    const stream = client.messages.stream({ model: 'm', max_tokens: 9, messages: [...question] })
    const { id: _given, ...final } = JSON.parse(JSON.stringify(await stream.finalMessage()))
    const request = server.requests.at(-1) ?? fail(reply)
    const { id: _other, ...whole } = JSON.parse(
      JSON.stringify(messagesServer.whole(headOf(messagesServer, request), reply)),
    )
    delete final.parsed_output
    for (const block of final.content) delete block.parsed
    expect(final).toEqual(whole)
  }
})

test('anthropic: interleaved pieces of two calls reach their own calls', async () => {
  const { tool_calls: calls = [] } = toolReply.message
  const answer: Answer = {
    reply: toolReply,
    deltas: [
      ...calls.map((call, index) => ({ kind: 'tool-call', index, id: call.id, name: call.function.name }) as const),
      { kind: 'arguments', index: 0, text: '{"city":' },
      { kind: 'arguments', index: 1, text: '{}' },
      { kind: 'arguments', index: 0, text: '"Graz"}' },
    ],
  }
  await using server = await serveReplies(messagesServer, () => answer)
  const stream = anthropic(server.url).messages.stream({ model: 'm', max_tokens: 9, messages: [...question] })
  const { content } = await stream.finalMessage()
  expect(JSON.parse(JSON.stringify(content))).toMatchObject([
    { type: 'tool_use', id: 'call_a', input: { city: 'Graz' } },
    { type: 'tool_use', id: 'call_b', input: {} },
  ])
})

test.for([
  [new MillraceError('model_rejected', 'bad', { data: { status: 400, param: 'n' } }), 400, 'BadRequestError'],
  [new MillraceError('model_auth', 'who?'), 401, 'AuthenticationError'],
  [new MillraceError('budget_exhausted', 'spent'), 403, 'PermissionDeniedError'],
  [new MillraceError('model_not_found', 'none'), 404, 'NotFoundError'],
  [new MillraceError('model_rate_limited', 'slow', { data: { retryAfterMs: 1500 } }), 429, 'RateLimitError'],
  [new MillraceError('model_server_error', 'oh'), 500, 'InternalServerError'],
  [new MillraceError('model_overloaded', 'full'), 503, 'InternalServerError'],
] as const)('both clients raise their own error for %s', async ([error, status, name]) => {
  await using chat = await serveReplies(chatServer, () => ({ reply: toolReply, error }))
  await using messages = await serveReplies(messagesServer, () => ({ reply: toolReply, error }))
  const fromOpenAi: unknown = await openai(chat.url)
    .chat.completions.create({ model: 'm', messages: [...question] })
    .catch((thrown: unknown) => thrown)
  const fromAnthropic: unknown = await anthropic(messages.url)
    .messages.create({ model: 'm', max_tokens: 9, messages: [...question] })
    .catch((thrown: unknown) => thrown)
  expect(fromOpenAi).toBeInstanceOf(OpenAI[name])
  expect(fromOpenAi).toMatchObject({ status, message: expect.stringContaining(error.rawMessage) })
  expect(fromAnthropic).toBeInstanceOf(Anthropic[name])
  expect(fromAnthropic).toMatchObject({ status: status === 503 ? 529 : status })
})

test('an error during a stream reaches both clients, and no reply does', async () => {
  const error = new MillraceError('model_truncated', 'the reply was cut')
  const answer: Answer = { reply: toolReply, error, errorAfter: 2 }
  await using chat = await serveReplies(chatServer, () => answer)
  await using messages = await serveReplies(messagesServer, () => answer)
  const completion = openai(chat.url).chat.completions.stream({ model: 'm', messages: [...question] })
  await expect(completion.finalChatCompletion()).rejects.toThrow('the reply was cut')
  const message = anthropic(messages.url).messages.stream({ model: 'm', max_tokens: 9, messages: [...question] })
  await expect(message.finalMessage()).rejects.toThrow('the reply was cut')
})

/** A reply whose calls are valid: of others, a client of Messages makes what it can. */
function answerOf(seed: number): Answer {
  const random = new RandomConversation(seed)
  const reply = random.reply()
  const isTruncated = reply.message.tool_calls?.some((call) => call.function.arguments.startsWith('{"cut"'))
  return isTruncated === true ? answerOf(seed + 1000) : { reply, deltas: random.deltas(reply.message) }
}

/** The message that it stands for: streams begin with an empty text, whole replies that only call have none. */
function chatMessageOf(message: object): string {
  const { messages } = chatServer.read({ model: 'm', messages: [JSON.parse(JSON.stringify(message))] })
  return JSON.stringify(messages)
}

function fail(context: unknown): never {
  throw new Error(`not expected here: ${JSON.stringify(context)}`)
}
