import { describe, expect, test } from 'vitest'
import { codeOf } from './_testing/code-of.ts'
import type { Message } from '../schema/index.ts'
import type { ModelRequest } from './backend.ts'
import type { DialectOptions } from './dialect.ts'
import { ResponsesDialect } from './responses-dialect.ts'

const source = { backend: 'b', url: 'http://b/v1/responses', model: 'm', apiKeyEnv: 'KEY' }
const dialect = (options: Partial<DialectOptions> = {}): ResponsesDialect =>
  new ResponsesDialect({ source, upstreamName: 'm', stream: false, sendReasoning: true, isOpenAi: false, ...options })

const conversation: Message[] = [
  { role: 'system', content: 'be brief' },
  {
    role: 'user',
    content: [
      { type: 'text', text: 'what is this?' },
      { type: 'image_url', image_url: { url: 'data:image/png;base64,AA' } },
    ],
  },
  {
    role: 'assistant',
    content: 'I will look',
    reasoning_content: 'hm',
    tool_calls: [{ id: 'c1', type: 'function', function: { name: 'look', arguments: '{}' } }],
  },
  { role: 'tool', tool_call_id: 'c1', content: 'a cat' },
]

const ask: ModelRequest = {
  messages: conversation,
  tools: [{ type: 'function', function: { name: 'look', description: 'looks', parameters: { type: 'object' } } }],
  toolChoice: { name: 'look' },
  sampling: {
    temperature: 1,
    maxTokens: 20,
    reasoningEffort: 'high',
    stop: ['x'],
    seed: 1,
    extra: { truncation: 'auto' },
  },
  captureTokens: false,
  sessionId: 's',
}

test('what is sent', () => {
  expect(JSON.parse(dialect().render(ask))).toEqual({
    model: 'm',
    store: false,
    input: [
      { role: 'system', content: 'be brief' },
      {
        role: 'user',
        content: [
          { type: 'input_text', text: 'what is this?' },
          { type: 'input_image', image_url: 'data:image/png;base64,AA', detail: 'auto' },
        ],
      },
      { type: 'reasoning', id: expect.stringMatching(/^rs_/), summary: [{ type: 'summary_text', text: 'hm' }] },
      { role: 'assistant', content: 'I will look' },
      { type: 'function_call', call_id: 'c1', name: 'look', arguments: '{}' },
      { type: 'function_call_output', call_id: 'c1', output: 'a cat' },
    ],
    tools: [{ type: 'function', name: 'look', description: 'looks', parameters: { type: 'object' }, strict: false }],
    tool_choice: { type: 'function', name: 'look' },
    temperature: 1,
    max_output_tokens: 20,
    reasoning: { effort: 'high' },
    truncation: 'auto',
  })
  expect(dialect({ isOpenAi: true }).render(ask)).not.toContain('summary_text')
  expect(dialect({ sendReasoning: false }).render(ask)).not.toContain('summary_text')
})

const response = {
  status: 'completed',
  error: null,
  output: [
    {
      type: 'reasoning',
      summary: [
        { type: 'summary_text', text: 'one' },
        { type: 'summary_text', text: 'two' },
      ],
    },
    {
      type: 'message',
      content: [
        { type: 'output_text', text: 'hi ' },
        { type: 'output_text', text: 'there' },
      ],
    },
    { type: 'function_call', call_id: 'c2', name: 'look', arguments: '{"x":1}' },
    { type: 'web_search_call', id: 'w' },
  ],
  usage: {
    input_tokens: 9,
    input_tokens_details: { cached_tokens: 3 },
    output_tokens: 6,
    output_tokens_details: { reasoning_tokens: 2 },
  },
}
const reply = {
  message: {
    role: 'assistant',
    content: 'hi there',
    reasoning_content: 'one\n\ntwo',
    tool_calls: [{ id: 'c2', type: 'function', function: { name: 'look', arguments: '{"x":1}' } }],
  },
  finishReason: 'tool_calls',
  usage: { calls: 1, input: 9, cachedInput: 3, output: 6, reasoning: 2 },
}
const onlyText = { ...response, output: [{ type: 'message', content: [{ type: 'output_text', text: 'hi' }] }] }

describe('what is read', () => {
  test('a whole response', () => {
    expect(dialect().parse(response, {})).toEqual(reply)
  })

  test.each([
    ['max_output_tokens', 'length'],
    ['content_filter', 'content_filter'],
  ])('incomplete because of %s', (reason, finishReason) => {
    const body = { ...onlyText, status: 'incomplete', incomplete_details: { reason } }
    expect(dialect().parse(body, {}).finishReason).toBe(finishReason)
  })

  test('a refusal', () => {
    const body = { ...onlyText, output: [{ type: 'message', content: [{ type: 'refusal', refusal: 'no' }] }] }
    expect(dialect().parse(body, {}).message).toEqual({ role: 'assistant', content: null, refusal: 'no' })
  })

  test.each([
    ['still running', { ...response, status: 'in_progress' }, 'model_truncated'],
    ['no output', { status: 'completed' }, 'model_malformed'],
    ['failed', { ...response, status: 'failed', error: { code: 'server_error', message: 'x' } }, 'model_server_error'],
    ['too long', { error: { code: 'context_length_exceeded', message: 'x' } }, 'context_length'],
  ])('%s', async (_name, body, code) => {
    expect(await codeOf(() => dialect().parse(body, {}))).toBe(code)
  })
})

describe('streams', () => {
  const assemble = (events: readonly object[]) => {
    const stream = dialect({ stream: true }).assemble({})
    for (const event of events) stream.onEvent(JSON.stringify(event))
    return stream
  }

  test('the last event carries the response', () => {
    const stream = assemble([{ type: 'response.created', response: { status: 'in_progress' } }])
    expect(stream.hasOutput).toBe(false)
    stream.onEvent(JSON.stringify({ type: 'response.output_text.delta', delta: 'hi' }))
    expect(stream.hasOutput).toBe(true)
    expect(stream.isComplete).toBe(false)
    stream.onEvent(JSON.stringify({ type: 'response.completed', response }))
    expect(stream.isComplete).toBe(true)
    expect(stream.reply()).toEqual(reply)
  })

  test('items stand in for an output that was left out', () => {
    const stream = assemble([
      ...response.output.map((item) => ({ type: 'response.output_item.done', item })),
      { type: 'response.completed', response: { ...response, output: [] } },
    ])
    expect(stream.reply()).toEqual(reply)
  })

  test('incomplete is an end, too', () => {
    const incomplete = { ...onlyText, status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } }
    expect(assemble([{ type: 'response.incomplete', response: incomplete }]).reply().finishReason).toBe('length')
  })

  test('without such an end there is no reply', async () => {
    const stream = assemble([{ type: 'response.output_text.delta', delta: 'hi' }])
    expect(stream.isComplete).toBe(false)
    expect(await codeOf(() => stream.reply())).toBe('model_truncated')
  })

  test.each([
    [
      { type: 'response.failed', response: { error: { code: 'rate_limit_exceeded', message: 'x' } } },
      'model_rate_limited',
    ],
    [{ type: 'error', code: 'server_error', message: 'x' }, 'model_server_error'],
    [{ type: 'error', error: { type: 'overloaded_error', message: 'x' } }, 'model_overloaded'],
  ])('%j', async (event, code) => {
    expect(await codeOf(() => assemble([event]))).toBe(code)
  })
})
