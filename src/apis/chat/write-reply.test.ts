import { expect, test } from 'vitest'
import { MillraceError } from '../../errors/index.ts'
import type { BackendReply } from '../backend.ts'
import type { JsonObject } from '../../schema/index.ts'
import { chatServer } from './write-reply.ts'
import { headOf } from '../../../test/support/apis/reply-server.ts'

const hello = { role: 'user', content: 'hello' }

function read(fields: JsonObject): ReturnType<typeof chatServer.read> {
  return chatServer.read({ model: 'm', messages: [hello], ...fields })
}

function readMessage(message: JsonObject): unknown {
  return read({ messages: [message] }).messages[0]
}

test.for([
  [
    { role: 'system', content: 'be brief' },
    { role: 'system', content: 'be brief' },
  ],
  [
    { role: 'developer', content: [{ type: 'text', text: 'x' }] },
    { role: 'developer', content: 'x' },
  ],
  [
    { name: 'ann', role: 'user', content: 'hi' },
    { role: 'user', content: 'hi', name: 'ann' },
  ],
  [
    { role: 'user', content: [] },
    { role: 'user', content: '' },
  ],
  [
    {
      role: 'user',
      content: [
        { type: 'text', text: 'look', cache_control: { type: 'ephemeral' } },
        { type: 'image_url', image_url: { url: 'https://x/y.png', detail: 'auto' } },
        { type: 'image_url', image_url: { url: 'https://x/y.png', detail: 'low' } },
      ],
    },
    {
      role: 'user',
      content: [
        { type: 'text', text: 'look' },
        { type: 'image_url', image_url: { url: 'https://x/y.png' } },
        { type: 'image_url', image_url: { url: 'https://x/y.png', detail: 'low' } },
      ],
    },
  ],
  [
    { role: 'assistant', tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: '{"x": 1' } }] },
    {
      role: 'assistant',
      content: null,
      tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: '{"x": 1' } }],
    },
  ],
  [
    {
      tool_calls: [],
      refusal: null,
      reasoning: 'hm',
      content: [
        { type: 'text', text: 'a' },
        { type: 'text', text: 'b' },
      ],
      role: 'assistant',
    },
    { role: 'assistant', content: 'ab', reasoning_content: 'hm' },
  ],
  [
    { role: 'assistant', content: [{ type: 'refusal', refusal: 'no' }] },
    { role: 'assistant', content: null, refusal: 'no' },
  ],
  [
    { role: 'assistant', content: null },
    { role: 'assistant', content: '' },
  ],
  [
    { role: 'tool', tool_call_id: 'a', name: 'f', content: [{ type: 'text', text: 'done' }] },
    { role: 'tool', tool_call_id: 'a', content: 'done' },
  ],
] as const)('reads the message %j', ([written, message]) => {
  // As text, because the order of the fields counts.
  expect(JSON.stringify(readMessage(written))).toBe(JSON.stringify(message))
})

test('calls without ids, and their results, get the ids they were recorded with', () => {
  const call = (name: string, id?: string | null) => ({ id, type: 'function', function: { name, arguments: '{}' } })
  const result = (content: string, id?: string | null) => ({ role: 'tool', content, tool_call_id: id })
  const turn = [
    { role: 'assistant', content: null, tool_calls: [call('f'), call('g', ''), call('h', 'own')] },
    result('one', ''),
    result('two', null),
    result('three', 'own'),
  ]
  const { messages } = read({ messages: [hello, ...turn, ...turn] as JsonObject[] })
  const expected = (one: string, two: string) => [
    { role: 'assistant', content: null, tool_calls: [call('f', one), call('g', two), call('h', 'own')] },
    { role: 'tool', tool_call_id: one, content: 'one' },
    { role: 'tool', tool_call_id: two, content: 'two' },
    { role: 'tool', tool_call_id: 'own', content: 'three' },
  ]
  expect(messages).toEqual([hello, ...expected('call_0', 'call_1'), ...expected('call_2', 'call_3')])
  // One that has an id is answered by it.
  const answered = { messages: [{ role: 'assistant', tool_calls: [call('h', 'own')] }, result('x', '')] } as JsonObject
  expect(refusalOf(answered).data['param']).toBe('messages[1].tool_call_id')
})

test('a limit of -1 means no limit and reaches the backend unchanged', () => {
  const { sampling, body, unsupported } = read({ max_tokens: -1 })
  expect({ sampling, unsupported }).toEqual({ sampling: {}, unsupported: [] })
  expect(body).toMatchObject({ max_tokens: -1 })
})

test('all fields of a request are read', () => {
  const request = read({
    tools: [
      { type: 'function', function: { name: 'f', parameters: { type: 'object' }, description: 'does', strict: true } },
      { type: 'function', function: { name: 'g' } },
    ],
    tool_choice: { type: 'function', function: { name: 'f' } },
    parallel_tool_calls: false,
    temperature: 0,
    top_p: 0.5,
    max_tokens: 5,
    max_completion_tokens: 7,
    stop: 'END',
    seed: 3,
    reasoning_effort: 'low',
    response_format: { type: 'json_object' },
    n: 1,
    stream: true,
    stream_options: { include_usage: true },
    return_token_ids: true,
    store: false,
    modalities: ['text'],
    top_logprobs: null,
    user: 'u',
    guided_regex: '[a-z]',
    ['__proto__']: 1,
  })
  expect(request).toMatchObject({
    model: 'm',
    messages: [hello],
    tools: [
      {
        type: 'function',
        function: { name: 'f', description: 'does', parameters: { type: 'object' }, strict: true },
      },
      { type: 'function', function: { name: 'g', parameters: { type: 'object', properties: {} } } },
    ],
    toolChoice: { name: 'f' },
    parallelToolCalls: false,
    responseFormat: { kind: 'json_object' },
    stream: true,
    includeUsage: true,
    wantsTokenIds: true,
    wantsLogprobs: false,
    unsupported: [],
  })
  const { extra, ...known } = request.sampling
  expect(known).toEqual({
    temperature: 0,
    topP: 0.5,
    maxTokens: 7,
    stop: ['END'],
    seed: 3,
    reasoningEffort: 'low',
  })
  expect(JSON.stringify(extra)).toBe('{"user":"u","guided_regex":"[a-z]","__proto__":1}')
})

test('a field that is absent or null is not in the request read', () => {
  const nothing = read({})
  const nulls = read({ tools: null, tool_choice: null, temperature: null, stop: null, response_format: null, n: null })
  expect(Object.keys(nulls)).toEqual(Object.keys(nothing))
  expect(nothing.sampling).toEqual({})
  expect(nulls.sampling).toEqual({})
})

test.for([
  [{ tools: [{ type: 'web_search' }] }, 'tools[0].type web_search'],
  [{ tool_choice: { type: 'allowed_tools', allowed_tools: {} } }, 'tool_choice.type allowed_tools'],
  [{ response_format: { type: 'grammar' } }, 'response_format.type grammar'],
  [{ logprobs: true }, 'logprobs'],
  [{ top_logprobs: 2 }, 'top_logprobs'],
  [{ audio: { voice: 'x' } }, 'audio'],
  [{ modalities: ['text', 'audio'] }, 'modalities'],
  [{ prediction: {} }, 'prediction'],
  [{ web_search_options: {} }, 'web_search_options'],
  [{ functions: [{ name: 'f' }] }, 'functions'],
  [{ function_call: 'auto' }, 'function_call'],
  [{ store: true }, 'store'],
  [{ messages: [{ role: 'user', content: [{ type: 'file', file: {} }] }] }, 'messages[0].content[0].type file'],
  [{ messages: [{ role: 'system', content: '', name: 'x' }] }, 'messages[0].name'],
  [{ messages: [{ role: 'assistant', content: '', audio: { id: 'a' } }] }, 'messages[0].audio'],
  [{ messages: [{ role: 'assistant', content: [{ type: 'audio' }] }] }, 'messages[0].content[0].type audio'],
  [{ messages: [{ role: 'assistant', tool_calls: [{ type: 'other' }] }] }, 'messages[0].tool_calls[0].type other'],
  [{ tools: [{ type: 'custom', custom: { name: 'sql' } }] }, 'tools[0].type custom'],
] as const)('a field that only this API supports is listed as unsupported: %j', ([fields, name]) => {
  const request = read(fields)
  expect(request.unsupported).toEqual([name])
  expect(request.sampling).toEqual({})
})

test('content that only this API supports is kept unchanged', () => {
  const audio = { type: 'input_audio', input_audio: { data: 'AA', format: 'wav' } }
  expect(readMessage({ role: 'user', content: [audio] })).toEqual({
    role: 'user',
    content: [{ type: 'other', api: 'chat', value: audio }],
  })
  const call = { id: 'c1', type: 'custom', custom: { name: 'sql', input: 'select 1' } }
  expect(readMessage({ role: 'assistant', audio: { id: 'a1' }, tool_calls: [call] })).toEqual({
    role: 'assistant',
    content: null,
    others: [
      { type: 'other', api: 'chat', value: call },
      { type: 'other', api: 'chat', value: { audio: { id: 'a1' } } },
    ],
  })
  expect(readMessage({ role: 'system', content: 'Be kind.', name: 'house' })).toEqual({
    role: 'system',
    content: 'Be kind.',
    name: 'house',
  })
})

test('a limited number of unsupported fields is listed', () => {
  const content = Array.from({ length: 1000 }, () => ({ type: 'x'.repeat(1000) }))
  const { unsupported } = read({ messages: [{ role: 'user', content }] })
  expect(unsupported.length).toBe(16)
  expect(unsupported.join().length).toBeLessThan(3000)
})

test.for([
  [{ model: 3 }, 'model'],
  [{ messages: [] }, 'messages'],
  [{ messages: 'hi' }, 'messages'],
  [{ messages: ['hi'] }, 'messages[0]'],
  [{ messages: [hello, { role: 'function', name: 'f', content: '' }] }, 'messages[1].role'],
  [{ messages: [{ role: 'robot', content: '' }] }, 'messages[0].role'],
  [{ messages: [{ role: 'user', content: null }] }, 'messages[0].content'],
  [{ messages: [{ role: 'user', content: ['hi'] }] }, 'messages[0].content[0]'],
  [{ messages: [{ role: 'user', content: [{ type: 'text' }] }] }, 'messages[0].content[0].text'],
  [
    { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: 'x' }] }] },
    'messages[0].content[0].image_url',
  ],
  [{ messages: [{ role: 'tool', content: '' }] }, 'messages[0].tool_call_id'],
  [{ messages: [{ role: 'assistant', function_call: { name: 'f' } }] }, 'messages[0].function_call'],
  [{ messages: [{ role: 'assistant', tool_calls: {} }] }, 'messages[0].tool_calls'],
  [
    { messages: [{ role: 'assistant', tool_calls: [{ id: 'a', function: { name: 'f', arguments: {} } }] }] },
    'messages[0].tool_calls[0].function.arguments',
  ],
  [{ n: 129 }, 'n'],
  [{ temperature: -1 }, 'temperature'],
  [{ temperature: '1' }, 'temperature'],
  [{ top_p: 1.5 }, 'top_p'],
  [{ max_tokens: 0 }, 'max_tokens'],
  [{ max_completion_tokens: 1.5 }, 'max_completion_tokens'],
  [{ stop: ['a', 1] }, 'stop'],
  [{ seed: 0.5 }, 'seed'],
  [{ stream: 'yes' }, 'stream'],
  [{ stream_options: { include_usage: 1 } }, 'stream_options.include_usage'],
  [{ tools: {} }, 'tools'],
  [{ tools: [{ type: 'function' }] }, 'tools[0].function'],
  [{ tools: [{ type: 'function', function: { name: '' } }] }, 'tools[0].function.name'],
  [{ tool_choice: 'any' }, 'tool_choice'],
  [{ tool_choice: { type: 'function' } }, 'tool_choice.function'],
  [{ response_format: { type: 'json_schema' } }, 'response_format.json_schema'],
] as const)('refuses %j', ([fields, param]) => {
  const refusal = refusalOf(fields)
  expect(refusal).toMatchObject({ code: 'model_rejected', data: { status: 400, param } })
  expect(chatServer.error(refusal)).toMatchObject({
    status: 400,
    body: { error: { type: 'invalid_request_error', param } },
  })
})

function refusalOf(fields: JsonObject): MillraceError {
  try {
    read(fields)
  } catch (error) {
    return MillraceError.from(error, 'internal')
  }
  throw new Error('it was not refused')
}

const reply: BackendReply = {
  message: { role: 'assistant', content: 'hi' },
  finishReason: 'stop',
  usage: { calls: 1, input: 2, cachedInput: 0, output: 1, reasoning: 0 },
  tokens: { promptIds: Int32Array.of(1, 2), ids: Int32Array.of(3), logprobs: Float32Array.of(-0.5) },
}

test('token ids are in a reply or stream only if the client asked for them', () => {
  for (const wanted of [true, false]) {
    const request = read({ return_token_ids: wanted })
    const head = headOf(chatServer, request)
    const whole = chatServer.whole(head, reply)
    const [last] = chatServer.stream(head).end(reply)
    const ids = wanted ? { prompt_token_ids: [1, 2], choices: [{ token_ids: [3] }] } : {}
    expect(whole).toMatchObject(ids)
    expect(last?.data).toMatchObject(ids)
    expect(JSON.stringify([whole, last]).includes('token_ids')).toBe(wanted)
  }
})

test('an error holds the message of the backend and nothing about our own faults', () => {
  const data = { status: 418, said: 'short and stout', saidType: 'teapot', saidCode: 'tea', retryAfterMs: 2500 }
  expect(chatServer.error(new MillraceError('model_rejected', 'http://10.0.0.1 answered 418', { data }))).toEqual({
    status: 418,
    headers: { 'retry-after': '3', 'retry-after-ms': '2500' },
    body: { error: { message: 'short and stout', type: 'teapot', param: null, code: 'tea' } },
  })
  const internal = chatServer.error(new MillraceError('internal', 'secret of ours'))
  expect(internal.status).toBe(500)
  expect(JSON.stringify(internal)).not.toContain('secret')
})
