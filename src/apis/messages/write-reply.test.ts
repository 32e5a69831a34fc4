import { expect, test } from 'vitest'
import { MillraceError, type ErrorCode } from '../../errors/index.ts'
import type { BackendReply, ReplyDelta } from '../backend.ts'
import type { Json, JsonObject } from '../../schema/index.ts'
import { messagesServer } from './write-reply.ts'
import { headOf } from '../../../test/support/apis/reply-server.ts'

const hello = { role: 'user', content: 'hello' }

function read(fields: JsonObject): ReturnType<typeof messagesServer.read> {
  return messagesServer.read({ model: 'm', max_tokens: 10, messages: [hello], ...fields })
}

test('a new thread is not kept, and continuing it fails as not found', () => {
  expect(read({ thread: { type: 'create' } }).sampling).toEqual(read({}).sampling)
  expect(read({ thread: null }).unsupported).toEqual([])
  let error: unknown
  try {
    read({ thread: { type: 'continue', previous_message_id: 'msg_1' } })
  } catch (thrown) {
    error = thrown
  }
  // What Anthropic's clients look for before they send everything again.
  expect(messagesServer.error(MillraceError.from(error, 'internal'))).toMatchObject({
    status: 404,
    body: { error: { type: 'not_found_error', details: { error_code: 'thread_not_found' } } },
  })
})

const png = { type: 'base64', media_type: 'image/png', data: 'AAAA' }
const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } }

test.for([
  [
    [{ role: 'user', content: [{ type: 'text', text: 'hi', cache_control: { type: 'ephemeral' } }] }],
    [{ role: 'user', content: 'hi' }],
  ],
  [[{ role: 'user', content: [] }], [{ role: 'user', content: '' }]],
  [[{ role: 'user', content: [{ type: 'image', source: png }] }], [{ role: 'user', content: [image] }]],
  [
    [{ role: 'user', content: [{ type: 'image', source: { type: 'url', url: 'https://x/y.png' } }] }],
    [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'https://x/y.png' } }] }],
  ],
  [
    [
      {
        role: 'user',
        content: [
          { type: 'tool_result', tool_use_id: 'a', content: 'fine', is_error: false },
          {
            type: 'tool_result',
            tool_use_id: 'b',
            content: [
              { type: 'text', text: 'see' },
              { type: 'image', source: png },
            ],
          },
          { type: 'tool_result', tool_use_id: 'c', is_error: true },
          { type: 'text', text: 'go on' },
        ],
      },
    ],
    [
      { role: 'tool', tool_call_id: 'a', content: 'fine' },
      { role: 'tool', tool_call_id: 'b', content: [{ type: 'text', text: 'see' }, image] },
      { role: 'tool', tool_call_id: 'c', content: '', is_error: true },
      { role: 'user', content: 'go on' },
    ],
  ],
  [
    [
      {
        role: 'assistant',
        content: [
          { type: 'thinking', thinking: 'hm', signature: 'sig' },
          { type: 'text', text: 'I ' },
          { type: 'text', text: 'look' },
          { type: 'tool_use', id: 'a', name: 'f', input: { x: [1, null] } },
        ],
      },
      hello,
    ],
    [
      {
        role: 'assistant',
        content: 'I look',
        reasoning_content: 'hm',
        tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: '{"x":[1,null]}' } }],
      },
      hello,
    ],
  ],
  [
    [hello, { role: 'system', content: 'from now on, be brief' }, hello],
    [hello, { role: 'system', content: 'from now on, be brief' }, hello],
  ],
] as const)('reads the turns %j', ([turns, messages]) => {
  const request = read({ messages: turns })
  expect(JSON.stringify(request.messages)).toBe(JSON.stringify(messages))
  expect(request.unsupported).toEqual([])
})

test.for([
  ['be brief', 'be brief'],
  [[{ type: 'text', text: 'be brief', cache_control: { type: 'ephemeral' } }], 'be brief'],
  [
    [
      { type: 'text', text: 'one' },
      { type: 'text', text: 'two' },
    ],
    [
      { type: 'text', text: 'one' },
      { type: 'text', text: 'two' },
    ],
  ],
] as const)('the system prompt %j becomes the first message', ([system, content]) => {
  expect(read({ system }).messages).toEqual([{ role: 'system', content }, hello])
})

test('an empty system prompt is left out', () => {
  for (const system of ['', [], null]) expect(read({ system }).messages).toEqual([hello])
})

test('all fields of a request are read', () => {
  const request = read({
    tools: [
      {
        name: 'f',
        description: 'does',
        input_schema: { type: 'object' },
        strict: true,
        cache_control: { type: 'ephemeral' },
      },
      {
        name: 'g',
        type: 'custom',
        input_schema: { type: 'object' },
        eager_input_streaming: true,
        allowed_callers: ['direct'],
      },
    ],
    tool_choice: { type: 'any', disable_parallel_tool_use: true },
    temperature: 1,
    top_p: 0.9,
    top_k: 40,
    stop_sequences: ['END'],
    stream: true,
    thinking: { type: 'enabled', budget_tokens: 4096 },
    output_config: { format: { type: 'json_schema', schema: { type: 'object' } } },
    metadata: { user_id: 'u-1' },
    mcp_servers: [],
    cache_control: { type: 'ephemeral' },
    service_tier: 'standard_only',
    min_p: 0.1,
  })
  expect(request).toMatchObject({
    model: 'm',
    tools: [
      { type: 'function', function: { name: 'f', description: 'does', parameters: { type: 'object' }, strict: true } },
      { type: 'function', function: { name: 'g', parameters: { type: 'object' } } },
    ],
    toolChoice: 'required',
    parallelToolCalls: false,
    responseFormat: { kind: 'json_schema', schema: { type: 'object' }, strict: true },
    stream: true,
    unsupported: [],
  })
  expect(request.sampling).toEqual({
    maxTokens: 10,
    temperature: 1,
    topP: 0.9,
    stop: ['END'],
    reasoningEffort: 'medium',
    extra: { user: 'u-1', top_k: 40, min_p: 0.1, service_tier: 'default' },
  })
})

test.for([
  [{ type: 'auto' }, 'auto'],
  [{ type: 'none' }, 'none'],
  [{ type: 'any' }, 'required'],
  [{ type: 'tool', name: 'f' }, { name: 'f' }],
] as const)('the tool choice %j is read as %j', ([choice, expected]) => {
  const request = read({ tool_choice: choice })
  expect(request.toolChoice).toEqual(expected)
  expect(request).not.toHaveProperty('parallelToolCalls')
})

test.for([
  [{ thinking: { type: 'enabled', budget_tokens: 2048 } }, { reasoningEffort: 'low' }],
  [{ thinking: { type: 'enabled', budget_tokens: 8192 } }, { reasoningEffort: 'medium' }],
  [{ thinking: { type: 'enabled', budget_tokens: 8193 } }, { reasoningEffort: 'high' }],
  [{ thinking: { type: 'adaptive' } }, {}],
  [{ thinking: { type: 'adaptive' }, output_config: { effort: 'max' } }, { reasoningEffort: 'max' }],
  [{ thinking: { type: 'disabled' } }, { extra: { chat_template_kwargs: { enable_thinking: false } } }],
  [
    { thinking: { type: 'disabled' }, chat_template_kwargs: { tools_in_user: true } },
    { extra: { chat_template_kwargs: { enable_thinking: false, tools_in_user: true } } },
  ],
] as const)('thinking in %j is read as %j', ([fields, sampling]) => {
  expect(read(fields).sampling).toEqual({ maxTokens: 10, ...sampling })
})

test('the format of a reply is read under its older name as well', () => {
  const format = { type: 'json_schema', schema: { type: 'object' } }
  expect(read({ output_format: format }).responseFormat).toEqual(read({ output_config: { format } }).responseFormat)
})

const block = (content: Json): JsonObject => ({ messages: [{ role: 'user', content: [content] }] })
const said = (content: Json): JsonObject => ({ messages: [{ role: 'assistant', content: [content] }, hello] })

test.for([
  [{ tools: [{ type: 'web_search_20250305', name: 'web_search' }] }, 'tools[0].type web_search_20250305'],
  [{ tools: [{ name: 'f', input_schema: {}, defer_loading: true }] }, 'tools[0].defer_loading'],
  [{ tools: [{ name: 'f', input_schema: {}, input_examples: [{}] }] }, 'tools[0].input_examples'],
  [{ tools: [{ name: 'f', input_schema: {}, allowed_callers: ['code'] }] }, 'tools[0].allowed_callers'],
  [{ mcp_servers: [{ name: 'x' }] }, 'mcp_servers'],
  [{ container: 'c' }, 'container'],
  [
    { context_management: { edits: [{ type: 'clear_thinking_20251015' }] } },
    'context_management.edits[0].type clear_thinking_20251015',
  ],
  [{ thinking: { type: 'between_tools' } }, 'thinking.type between_tools'],
  [{ output_config: { task_budget: 5 } }, 'output_config.task_budget'],
  [block({ type: 'document', source: {} }), 'messages[0].content[0].type document'],
  [block({ type: 'image', source: { type: 'file', file_id: 'f' } }), 'messages[0].content[0].type image'],
  [said({ type: 'redacted_thinking', data: 'x' }), 'messages[0].content[0].type redacted_thinking'],
  [
    said({ type: 'server_tool_use', id: 'a', name: 'web_search', input: {} }),
    'messages[0].content[0].type server_tool_use',
  ],
  [{ messages: [hello, { role: 'assistant', content: 'The answer is' }] }, 'messages[1] a prefilled reply'],
] as const)('a field that only this API supports is listed as unsupported: %j', ([fields, name]) => {
  expect(read(fields).unsupported).toEqual([name])
})

test('a block is read without its cache_control mark', () => {
  const document = { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'x' } }
  const marked = { ...document, cache_control: { type: 'ephemeral' } }
  const expected = [{ role: 'user', content: [{ type: 'other', api: 'messages', value: document }] }]
  for (const each of [document, marked]) expect(read(block(each)).messages).toEqual(expected)
})

test('the error about max_tokens does not suggest to leave it out', () => {
  expect(() => read({ max_tokens: null })).toThrow('max_tokens is missing')
  expect(() => read({ max_tokens: 0 })).toThrow(/max_tokens must be a whole number from 1 on$/)
})

test.for([
  [{ max_tokens: null }, 'max_tokens'],
  [{ max_tokens: 0 }, 'max_tokens'],
  [{ model: '' }, 'model'],
  [{ messages: [] }, 'messages'],
  [{ messages: [{ role: 'tool', content: '' }] }, 'messages[0].role'],
  [{ messages: [{ role: 'user' }] }, 'messages[0].content'],
  [{ messages: [{ role: 'assistant', content: null }] }, 'messages[0].content'],
  [block('hi'), 'messages[0].content[0]'],
  [block({ type: 'text', text: 1 }), 'messages[0].content[0].text'],
  [block({ type: 'tool_result' }), 'messages[0].content[0].tool_use_id'],
  [block({ type: 'tool_result', tool_use_id: 'a', content: [{}] }), 'messages[0].content[0].content[0]'],
  [block({ type: 'image', source: { type: 'base64', data: 'x' } }), 'messages[0].content[0].source.media_type'],
  [said({ type: 'tool_use', id: 'a', name: 'f', input: 'x' }), 'messages[0].content[0].input'],
  [{ system: 5 }, 'system'],
  [{ tools: [{ name: 'f' }] }, 'tools[0].input_schema'],
  [{ tool_choice: { type: 'tool' } }, 'tool_choice.name'],
  [{ thinking: { type: 'enabled' } }, 'thinking.budget_tokens'],
  [{ output_config: { format: { type: 'json_schema' } } }, 'output_config.format.schema'],
  [{ stop_sequences: [1] }, 'stop_sequences'],
] as const)('refuses %j', ([fields, param]) => {
  expect(() => read(fields)).toThrow(expect.objectContaining({ code: 'model_rejected', data: { status: 400, param } }))
})

const reply: BackendReply = {
  message: {
    role: 'assistant',
    content: 'Hi.',
    reasoning_content: 'hm',
    tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: '{"x":1}' } }],
  },
  finishReason: 'tool_calls',
  usage: { calls: 1, input: 9, cachedInput: 4, output: 3, reasoning: 1 },
}

/** The events of a stream of these, shortened. */
function eventNamesOf(deltas: readonly ReplyDelta[]): string[] {
  const writer = messagesServer.stream(headOf(messagesServer, read({ stream: true })))
  const events = [...writer.start(), ...deltas.flatMap((delta) => writer.delta(delta)), ...writer.end(reply)]
  return events.map(({ name, data }) => {
    if (data === '[DONE]') return data
    const { type, index = '', delta } = data
    expect(type).toBe(name)
    const kind = typeof delta === 'object' && delta !== null && 'type' in delta ? String(delta.type) : ''
    return `${String(name)} ${String(index)} ${kind}`.trimEnd()
  })
}

test('a stream opens and closes its blocks one after the other', () => {
  const told = eventNamesOf([
    { kind: 'reasoning', text: 'h' },
    { kind: 'reasoning', text: 'm' },
    { kind: 'content', text: '' },
    { kind: 'content', text: 'Hi.' },
    { kind: 'tool-call', index: 0, id: 'a', name: 'f' },
    { kind: 'arguments', index: 0, text: '{"x":1}' },
    { kind: 'tool-call', index: 1, id: 'b', name: 'f' },
  ])
  expect(told).toEqual([
    'message_start',
    'content_block_start 0',
    'content_block_delta 0 thinking_delta',
    'content_block_delta 0 thinking_delta',
    'content_block_delta 0 signature_delta',
    'content_block_stop 0',
    'content_block_start 1',
    'content_block_delta 1 text_delta',
    'content_block_stop 1',
    'content_block_start 2',
    'content_block_delta 2 input_json_delta',
    'content_block_stop 2',
    'content_block_start 3',
    'content_block_stop 3',
    'message_delta',
    'message_stop',
  ])
})

test('an interleaved call is sent after the call before it is complete, or at the end', () => {
  const told = eventNamesOf([
    { kind: 'tool-call', index: 0, id: 'a', name: 'f' },
    { kind: 'arguments', index: 0, text: '{"x"' },
    { kind: 'tool-call', index: 1, id: 'b', name: 'g' },
    { kind: 'arguments', index: 1, text: '{"y"' },
    { kind: 'arguments', index: 0, text: ':1}' },
    { kind: 'content', text: 'Hi.' },
  ])
  expect(told.slice(1, -2)).toEqual([
    'content_block_start 0',
    'content_block_delta 0 input_json_delta',
    'content_block_delta 0 input_json_delta',
    'content_block_stop 0',
    'content_block_start 1',
    'content_block_delta 1 input_json_delta',
    'content_block_stop 1',
    'content_block_start 2',
    'content_block_delta 2 text_delta',
    'content_block_stop 2',
  ])
})

test.for([
  ['stop', 'end_turn'],
  ['length', 'max_tokens'],
  ['tool_calls', 'tool_use'],
  ['content_filter', 'refusal'],
] as const)('finish reason %s becomes stop reason %s', ([finishReason, stop_reason]) => {
  const head = headOf(messagesServer, read({}))
  expect(messagesServer.whole(head, { ...reply, finishReason })).toMatchObject({ stop_reason })
  const [last] = messagesServer.stream(head).end({ ...reply, finishReason })
  expect(last?.data).toMatchObject({ type: 'message_delta', delta: { stop_reason } })
})

test('a long call beside another is not parsed again for each piece', () => {
  const stream = messagesServer.stream(headOf(messagesServer, read({})))
  stream.delta({ kind: 'tool-call', index: 0, id: 'c1', name: 'write' })
  stream.delta({ kind: 'arguments', index: 0, text: '{"text":"' })
  stream.delta({ kind: 'tool-call', index: 1, id: 'c2', name: 'look' })
  // A matter of minutes, if it were.
  for (let piece = 0; piece < 150_000; piece += 1) stream.delta({ kind: 'arguments', index: 0, text: 'word ' })
  const types = stream.delta({ kind: 'arguments', index: 0, text: '"}' }).map(({ name }) => name)
  expect(types).toEqual(['content_block_delta', 'content_block_stop', 'content_block_start'])
})

test('arguments that are not an object reach the client wrapped, and the reply is not changed', () => {
  const broken = structuredClone(reply)
  const message = {
    ...broken.message,
    tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: '{"x":' } }],
  } as const
  const whole = messagesServer.whole(headOf(messagesServer, read({})), { ...broken, message })
  expect(whole['content']).toContainEqual(expect.objectContaining({ input: { INVALID_JSON: '{"x":' } }))
  expect(message.tool_calls[0].function.arguments).toBe('{"x":')
})

test('numbers outside the range of a double stay exact in original output, whole and streamed', () => {
  const written = '{"id": 9007199254740993}'
  const message = {
    ...reply.message,
    tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: written } }],
  } as const
  const output = [
    { type: 'tool_use', id: 'a', name: 'f', input: JSON.parse(written) as JsonObject },
    { type: 'text', text: 'b' },
  ]
  const head = headOf(messagesServer, read({}))
  const whole = messagesServer.whole(head, { ...reply, message, original: { api: 'messages', output } })
  expect(JSON.stringify(whole)).toContain('"input":{"id":9007199254740993}')
  const events = messagesServer.stream(head).repeat(output, message)
  expect(JSON.stringify(events)).toContain(JSON.stringify('{"id":9007199254740993}'))
})

test.for([
  ['model_rejected', 400, 'invalid_request_error'],
  ['model_auth', 401, 'authentication_error'],
  ['budget_exhausted', 403, 'permission_error'],
  ['model_not_found', 404, 'not_found_error'],
  ['model_rate_limited', 429, 'rate_limit_error'],
  ['model_server_error', 500, 'api_error'],
  ['model_truncated', 502, 'api_error'],
  ['model_timeout', 504, 'timeout_error'],
  ['overloaded', 529, 'overloaded_error'],
  ['model_overloaded', 529, 'overloaded_error'],
] as const satisfies readonly (readonly [ErrorCode, number, string])[])(
  'error %s has status %i and type %s',
  ([code, status, type]) => {
    const error = new MillraceError(code, 'why')
    expect(messagesServer.error(error)).toEqual({
      status,
      headers: {},
      body: { type: 'error', error: { type, message: 'why' } },
    })
    expect(messagesServer.streamError(error)).toMatchObject({ name: 'error', data: { type: 'error', error: { type } } })
  },
)

test('a session over its rate limit gets 429, not the status of an overloaded server', () => {
  const busy = new MillraceError('overloaded', 'wait', { data: { status: 429, retryAfterMs: 1000 } })
  expect(messagesServer.error(busy)).toMatchObject({
    status: 429,
    headers: { 'retry-after': '1' },
    body: { error: { type: 'rate_limit_error' } },
  })
})

test('the error type of a backend is kept if this API has it', () => {
  const typeFor = (saidType: string): unknown =>
    messagesServer.error(new MillraceError('model_rejected', 'x', { data: { status: 402, saidType } })).body['error']
  expect(typeFor('billing_error')).toMatchObject({ type: 'billing_error' })
  expect(typeFor('insufficient_quota')).toMatchObject({ type: 'billing_error' })
  expect(typeFor('permission_error')).toMatchObject({ type: 'permission_error' })
})

test('a conversation that is too long gets the message that agents recognise', () => {
  const error = new MillraceError('context_length', 'x', { data: { said: 'at most 4096 tokens' } })
  expect(messagesServer.error(error)).toMatchObject({
    status: 400,
    body: { error: { type: 'invalid_request_error', message: 'prompt is too long: at most 4096 tokens' } },
  })
})
