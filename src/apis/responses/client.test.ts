import OpenAI, { APIError, BadRequestError, RateLimitError } from 'openai'
import { zodResponsesFunction, zodTextFormat } from 'openai/helpers/zod'
import { toResponseInputItems } from 'openai/lib/responses/ResponseInputItems'
import type { ResponseInputItem } from 'openai/resources/responses/responses'
import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { MillraceError } from '../../errors/index.ts'
import type { BackendReply } from '../backend.ts'
import type { AssistantMessage, Message, ToolCall } from '../../schema/index.ts'
import { RandomConversation } from '../../../test/support/apis/random-conversation.ts'
import { serveReplies, type Answer, type ReplyServer } from '../../../test/support/apis/reply-server.ts'
import { responsesServer } from './write-stream.ts'

const usage = { calls: 1, input: 10, cachedInput: 4, output: 6, reasoning: 2 }

function replyOf(message: Omit<AssistantMessage, 'role'>): BackendReply {
  const finishReason = message.tool_calls ? 'tool_calls' : 'stop'
  return { message: { role: 'assistant', ...message }, finishReason, usage }
}

function call(id: string, name: string, written: object): ToolCall {
  return { id, type: 'function', function: { name, arguments: JSON.stringify(written) } }
}

function serve(answer: Answer | ((number: number) => Answer)): Promise<ReplyServer> {
  return serveReplies(responsesServer, (_request, number) => (typeof answer === 'function' ? answer(number) : answer))
}

function clientOf(server: ReplyServer): OpenAI {
  return new OpenAI({ baseURL: server.url, apiKey: 'none', maxRetries: 0 })
}

const weather = zodResponsesFunction({ name: 'weather', parameters: z.object({ city: z.string() }) })

describe('the official client', () => {
  test('gets a whole reply', async () => {
    await using server = await serve({ reply: replyOf({ content: 'Hello', reasoning_content: 'Hm.' }) })
    const response = await clientOf(server).responses.create({ model: 'm', input: 'Hi', instructions: 'Be brief.' })
    expect(response).toMatchObject({ status: 'completed', output_text: 'Hello', usage: { total_tokens: 16 } })
    expect(response.output.map(({ type }) => type)).toEqual(['reasoning', 'message'])
    expect(server.requests[0]?.messages).toEqual([
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'Hi' },
    ])
  })

  test('follows a stream to its final response', async () => {
    const reply = replyOf({ content: 'Hello there', reasoning_content: 'Hm.' })
    const deltas = new RandomConversation(1).deltas(reply.message)
    await using server = await serve({ reply, deltas })
    const stream = clientOf(server).responses.stream({ model: 'm', input: 'Hi' })
    let text = ''
    stream.on('response.output_text.delta', ({ delta }) => (text += delta))
    const final = await stream.finalResponse()
    expect(text).toBe('Hello there')
    expect(final).toMatchObject({ status: 'completed', output_text: 'Hello there', usage: { output_tokens: 6 } })
  })

  test('parses structured output', async () => {
    await using server = await serve({ reply: replyOf({ content: '{"name":"Ada","age":36}' }) })
    const format = zodTextFormat(z.object({ name: z.string(), age: z.number() }), 'person')
    const response = await clientOf(server).responses.parse({ model: 'm', input: 'Who?', text: { format } })
    expect(response.output_parsed).toEqual({ name: 'Ada', age: 36 })
    expect(server.requests[0]).toMatchObject({
      responseFormat: { kind: 'json_schema', name: 'person', strict: true, schema: { type: 'object' } },
      unsupported: [],
    })
  })

  test.each([false, true])('gets parallel calls, and a refusal as a refusal (stream: %s)', async (isStream) => {
    const calls = [call('c1', 'weather', { city: 'Rome' }), call('c2', 'weather', { city: 'Oslo' })]
    const replies = [replyOf({ content: null, tool_calls: calls }), replyOf({ content: null, refusal: 'I will not.' })]
    await using server = await serve((number) => ({ reply: replies[number - 1] as BackendReply }))
    const { responses } = clientOf(server)
    const ask = () => {
      const request = { model: 'm', input: 'Weather?', tools: [weather] }
      return isStream ? responses.stream(request).finalResponse() : responses.parse(request)
    }
    expect((await ask()).output).toMatchObject([
      { type: 'function_call', call_id: 'c1', parsed_arguments: { city: 'Rome' } },
      { type: 'function_call', call_id: 'c2', parsed_arguments: { city: 'Oslo' } },
    ])
    expect((await ask()).output).toMatchObject([{ content: [{ type: 'refusal', refusal: 'I will not.' }] }])
    expect(server.requests[0]?.tools).toMatchObject([{ function: { name: 'weather', strict: true } }])
  })
})

describe('the official client throws', () => {
  const reply = replyOf({ content: 'Hello' })

  test('for a fault of the request', async () => {
    await using server = await serve({ reply })
    const failed = clientOf(server).responses.create({ model: 'm', input: [] })
    await expect(failed).rejects.toThrow(BadRequestError)
    await expect(failed).rejects.toMatchObject({ status: 400, param: 'input', type: 'invalid_request_error' })
  })

  test('for an error of the backend', async () => {
    const error = new MillraceError('model_rate_limited', 'slow down', { data: { status: 429, retryAfterMs: 1500 } })
    await using server = await serve({ reply, error })
    const failed = clientOf(server).responses.create({ model: 'm', input: 'Hi' })
    await expect(failed).rejects.toThrow(RateLimitError)
    await failed.catch((thrown: RateLimitError) => expect(thrown.headers?.get('retry-after')).toBe('2'))
  })

  test.each(['create', 'stream'] as const)('during a stream (%s)', async (method) => {
    const error = new MillraceError('model_truncated', 'the backend went away')
    await using server = await serve({ reply, error, errorAfter: 1 })
    const { responses } = clientOf(server)
    const events: string[] = []
    const follow = async (): Promise<void> => {
      const request = { model: 'm', input: 'Hi' }
      const stream =
        method === 'create' ? await responses.create({ ...request, stream: true }) : responses.stream(request)
      for await (const event of stream) events.push(event.type)
    }
    const failed = follow()
    await expect(failed).rejects.toThrow(APIError)
    await expect(failed).rejects.toThrow('the backend went away')
    expect(events).toContain('response.output_text.delta')
  })
})

test.each([false, true])(
  'a conversation echoed by the client is read as the original replies (stream: %s)',
  async (isStream) => {
    const replied = Array.from({ length: 20 }, (_, turn) => new RandomConversation(turn).reply())
    await using server = await serve((number) => ({ reply: replied[number - 1] as BackendReply }))
    const { responses } = clientOf(server)
    const input: ResponseInputItem[] = []
    const said: Message[] = []
    for (const [turn, { message }] of replied.entries()) {
      input.push({ role: 'user', content: [{ type: 'input_text', text: `Question ${turn}` }] })
      said.push({ role: 'user', content: `Question ${turn}` })
      const request = { model: 'm', input, store: false }
      const response = await (isStream ? responses.stream(request).finalResponse() : responses.create(request))
      expect(JSON.stringify(server.requests[turn]?.messages)).toBe(JSON.stringify(said))
      input.push(...toResponseInputItems(response.output))
      said.push(message)
      for (const { id } of message.tool_calls ?? []) {
        input.push({ type: 'function_call_output', call_id: id, output: 'done' })
        said.push({ role: 'tool', tool_call_id: id, content: 'done' })
      }
    }
  },
)
