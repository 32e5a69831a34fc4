import { describe, expect, test } from 'vitest'
import type { Message } from '../../schema/index.ts'
import { codeOf, failureOf } from '../../../test/support/inference/code-of.ts'
import { dialectOptions } from '../../../test/support/inference/dialect-options.ts'
import { faultIn, messagesReply, type MessagesBody } from '../../../test/support/inference/messages-server.ts'
import type { ModelRequest } from '../backend.ts'
import type { DialectOptions } from '../client-side.ts'
import { MessagesDialect } from './write-request.ts'

const dialect = (options: Partial<DialectOptions> = {}): MessagesDialect =>
  new MessagesDialect(dialectOptions('messages', options))

const hello: Message = { role: 'user', content: 'hi' }
const ask = (more: Partial<ModelRequest> = {}): ModelRequest => ({
  messages: [hello],
  tools: [],
  sampling: {},
  captureTokens: false,
  sessionId: 's',
  ...more,
})
const sent = (more: Partial<ModelRequest>, options: Partial<DialectOptions> = {}): MessagesBody =>
  JSON.parse(dialect(options).render(ask(more))) as MessagesBody
const turnsOf = (...messages: Message[]): MessagesBody['messages'] => sent({ messages }).messages
const text = (value: string): object => ({ type: 'text', text: value })
const call = (id: string, written: string) => ({
  id,
  type: 'function' as const,
  function: { name: 'look', arguments: written },
})

const conversation: Message[] = [
  { role: 'system', content: 'be brief' },
  {
    role: 'user',
    content: [
      { type: 'text', text: 'what are these?' },
      { type: 'image_url', image_url: { url: 'data:image/png;base64,AA==', detail: 'high' } },
      { type: 'image_url', image_url: { url: 'https://pictures.test/cat.png' } },
    ],
  },
  {
    role: 'assistant',
    content: 'I will look',
    reasoning_content: 'hm',
    tool_calls: [call('c1', '{"at": 1.0, "big": 9007199254740993}'), call('c2', '')],
  },
  { role: 'tool', tool_call_id: 'c1', content: 'a cat' },
  { role: 'tool', tool_call_id: 'c2', content: 'no such picture', is_error: true },
  { role: 'user', content: 'go on', name: 'ann' },
]

describe('a request', () => {
  test('holds all fields', () => {
    const rendered = dialect().render(
      ask({
        messages: conversation,
        tools: [
          { type: 'function', function: { name: 'look', description: 'looks', parameters: { type: 'object' } } },
          { type: 'function', function: { name: 'stop', parameters: {}, strict: true } },
        ],
        toolChoice: { name: 'look' },
        sampling: {
          temperature: 0.5,
          topP: 0.9,
          maxTokens: 20,
          stop: ['x'],
          seed: 1,
          reasoningEffort: 'low',
          extra: { top_k: 5 },
        },
      }),
    )
    expect(JSON.parse(rendered)).toEqual({
      model: 'm',
      system: [text('be brief')],
      messages: [
        {
          role: 'user',
          content: [
            text('what are these?'),
            { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AA==' } },
            { type: 'image', source: { type: 'url', url: 'https://pictures.test/cat.png' } },
          ],
        },
        {
          role: 'assistant',
          content: [
            text('I will look'),
            { type: 'tool_use', id: 'c1', name: 'look', input: JSON.parse('{"at":1,"big":9007199254740993}') },
            { type: 'tool_use', id: 'c2', name: 'look', input: {} },
          ],
        },
        {
          role: 'user',
          content: [
            { type: 'tool_result', tool_use_id: 'c1', content: [text('a cat')] },
            { type: 'tool_result', tool_use_id: 'c2', content: [text('no such picture')], is_error: true },
            text('go on'),
          ],
        },
      ],
      tools: [
        { name: 'look', description: 'looks', input_schema: { type: 'object' } },
        { name: 'stop', input_schema: { type: 'object' }, strict: true },
      ],
      tool_choice: { type: 'tool', name: 'look' },
      max_tokens: 20,
      temperature: 0.5,
      top_p: 0.9,
      stop_sequences: ['x'],
      output_config: { effort: 'low' },
      top_k: 5,
    })
    // Not one digit of what the model wrote is lost.
    expect(rendered).toContain('"input":{"at": 1.0, "big": 9007199254740993}')
  })

  test('always has max_tokens', () => {
    expect(sent({})).toEqual({ model: 'm', messages: [{ role: 'user', content: [text('hi')] }], max_tokens: 4096 })
    expect(sent({ sampling: { extra: { max_tokens: 9 } } }).max_tokens).toBe(9)
  })

  test('is a stream if the model streams, unless the request overrides it', () => {
    const sampling = {}
    const streaming = dialect({ stream: true })
    const isStream = (more: Partial<ModelRequest>): unknown =>
      (JSON.parse(streaming.render(ask({ sampling, ...more }))) as MessagesBody).stream
    expect([isStream({}), isStream({ stream: false }), isStream({ stream: true })]).toEqual([true, undefined, true])
    expect(sent({ stream: true }).stream).toBe(true)
  })

  test('refuses extra for fields that cannot be overridden', async () => {
    for (const key of ['model', 'messages', 'system', 'tools', 'stream', 'thread']) {
      expect(await codeOf(() => dialect().render(ask({ sampling: { extra: { [key]: 1 } } }))), key).toBe(
        'config_invalid',
      )
    }
  })
})

describe('turns', () => {
  test('alternate: consecutive messages of one side are one turn, ignoring system messages between', () => {
    const messages: Message[] = [
      hello,
      { role: 'developer', content: 'be kind' },
      { role: 'user', content: 'there' },
      { role: 'assistant', content: 'a' },
      { role: 'assistant', content: 'b' },
      { role: 'system', content: [{ type: 'text', text: 'be brief' }] },
    ]
    expect(sent({ messages })).toMatchObject({
      system: [text('be kind'), text('be brief')],
      messages: [
        { role: 'user', content: [text('hi'), text('there')] },
        { role: 'assistant', content: [text('a'), text('b')] },
      ],
    })
  })

  test('have no blank text, and no turn is empty', () => {
    const turns = turnsOf(
      hello,
      { role: 'assistant', content: ' \n', tool_calls: [call('c', '{}')] },
      { role: 'tool', tool_call_id: 'c', content: '' },
      { role: 'assistant', content: null },
      { role: 'user', content: '' },
      { role: 'user', content: 'more' },
    )
    expect(turns).toEqual([
      { role: 'user', content: [text('hi')] },
      { role: 'assistant', content: [{ type: 'tool_use', id: 'c', name: 'look', input: {} }] },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'c' }, text('more')] },
    ])
  })

  test.each(['not json', '[1]', '"text"', '{"cut": '])('wrap the arguments %s in an object', (written) => {
    const turns = turnsOf(hello, { role: 'assistant', content: null, tool_calls: [call('c', written)] })
    expect(turns[1]?.content[0]).toMatchObject({ input: { INVALID_JSON: written } })
  })

  test('show a refusal as text, and images of tool results', () => {
    const picture: Message = {
      role: 'tool',
      tool_call_id: 'c',
      content: [{ type: 'image_url', image_url: { url: 'data:image/jpeg;base64,QQ==' } }],
    }
    const turns = turnsOf(hello, { role: 'assistant', content: null, refusal: 'no' }, picture)
    expect(turns[1]?.content).toEqual([text('no')])
    expect(turns[2]?.content[0]).toMatchObject({ content: [{ type: 'image', source: { media_type: 'image/jpeg' } }] })
  })

  test('of random conversations follow the rules of the API', () => {
    expect(faultIn(sent({ messages: conversation }))).toBeUndefined()
  })
})

describe('tool choice', () => {
  const tools = [{ type: 'function' as const, function: { name: 'look', parameters: {} } }]
  test.each([
    [{}, undefined],
    [{ toolChoice: 'auto' }, { type: 'auto' }],
    [{ toolChoice: 'required' }, { type: 'any' }],
    [{ toolChoice: 'none' }, { type: 'none' }],
    [{ toolChoice: { name: 'look' } }, { type: 'tool', name: 'look' }],
    [{ parallelToolCalls: true }, undefined],
    [{ parallelToolCalls: false }, { type: 'auto', disable_parallel_tool_use: true }],
    [
      { parallelToolCalls: false, toolChoice: 'required' },
      { type: 'any', disable_parallel_tool_use: true },
    ],
    [{ parallelToolCalls: false, toolChoice: 'none' }, { type: 'none' }],
  ] as [Partial<ModelRequest>, unknown][])('is set from %j', (more, expected) => {
    expect(sent({ tools, ...more })['tool_choice']).toEqual(expected)
  })

  test('is left out without tools', () => {
    expect(sent({ toolChoice: 'auto', parallelToolCalls: false })).not.toHaveProperty('tool_choice')
  })
})

describe('content that only one API supports', () => {
  test('is sent unchanged to that API', () => {
    const value = { type: 'document', source: { type: 'text', data: 'x' } }
    const turns = turnsOf({ role: 'user', content: [{ type: 'other', api: 'messages', value }] })
    expect(turns[0]?.content).toEqual([value])
  })

  test.each([
    [
      { messages: [{ role: 'user', content: [{ type: 'other', api: 'chat', value: { type: 'input_audio' } }] }] },
      'input_audio',
    ],
    [
      { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'file:///etc/passwd' } }] }] },
      'file:///etc/passwd',
    ],
    [
      { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:image/svg,<svg/>' } }] }] },
      'data:image/svg',
    ],
    [{ responseFormat: { kind: 'json_object' } }, 'json_object'],
  ] as [Partial<ModelRequest>, string][])('is refused by other APIs, with its name: %j', async (more, name) => {
    const error = await failureOf(() => dialect().render(ask(more)))
    expect(error).toMatchObject({ code: 'model_rejected', data: { status: 400 } })
    expect(String(error)).toContain(name)
  })

  test('the schema of a response format is sent in output_config', () => {
    const schema = { type: 'object', properties: { x: { type: 'number' } } }
    const responseFormat = { kind: 'json_schema' as const, name: 'n', schema, strict: true }
    const sampling = { reasoningEffort: 'high' }
    const expected = { effort: 'high', format: { type: 'json_schema', schema } }
    expect(sent({ responseFormat, sampling })['output_config']).toEqual(expected)
    const twice = { extra: { output_config: { effort: 'low' } } }
    expect(sent({ sampling: twice })).toMatchObject(twice.extra)
    expect(() => sent({ responseFormat, sampling: twice })).toThrow('sampling.extra cannot set "output_config"')
    const chosen = {
      ...ask({ sampling: { extra: { tool_choice: { type: 'any' } } } }),
      tools: [{ type: 'function', function: { name: 'look', parameters: {} } }],
    } as const
    expect(() => sent({ ...chosen, toolChoice: 'auto' })).toThrow('sampling.extra cannot set "tool_choice"')
    expect(sent(chosen)).toMatchObject({ tool_choice: { type: 'any' } })
  })
})

describe('a whole reply', () => {
  const parse = (body: unknown) => dialect().parse(body, {})

  test('is read with all its fields', () => {
    const redacted = { type: 'redacted_thinking', data: 'x' }
    const search = { type: 'server_tool_use', id: 's', name: 'web_search', input: { query: 'x' } }
    const blocks = [
      { type: 'thinking', thinking: 'one', signature: 's' },
      redacted,
      { type: 'thinking', thinking: '', signature: 's' },
      { type: 'thinking', thinking: 'two', signature: 's' },
      { type: 'text', text: 'hi ' },
      { type: 'text', text: 'there', citations: [] },
      search,
      { type: 'tool_use', id: 'c1', name: 'look', input: { x: 1 } },
      { type: 'tool_use', id: 'c2', name: 'look', input: {} },
    ]
    const body = messagesReply(blocks, {
      usage: {
        input_tokens: 7,
        cache_read_input_tokens: 5,
        cache_creation_input_tokens: 2,
        output_tokens: 9,
        output_tokens_details: { thinking_tokens: 4 },
      },
    })
    expect(parse(body)).toEqual({
      message: {
        role: 'assistant',
        content: 'hi there',
        reasoning_content: 'one\n\ntwo',
        tool_calls: [call('c1', '{"x":1}'), call('c2', '{}')],
        others: [redacted, search].map((value) => ({ type: 'other', api: 'messages', value })),
      },
      finishReason: 'tool_calls',
      usage: { calls: 1, input: 14, cachedInput: 5, output: 9, reasoning: 4 },
      original: { api: 'messages', output: blocks },
    })
  })

  test.each([
    [
      [
        { type: 'thinking', thinking: 'hm', signature: 'c2ln' },
        { type: 'text', text: 'hi' },
      ],
      true,
    ],
    [[{ type: 'text', text: 'hi', citations: [{ type: 'char_location', cited_text: 'hi' }] }], true],
    [
      [
        { type: 'text', text: 'a' },
        { type: 'tool_use', id: 'c', name: 'f', input: {} },
        { type: 'text', text: 'b' },
      ],
      true,
    ],
    [
      [
        { type: 'thinking', thinking: 'hm', signature: '' },
        { type: 'text', text: 'hi', citations: null },
      ],
      false,
    ],
    [
      [
        { type: 'tool_use', id: 'c', name: 'f', input: {} },
        { type: 'tool_use', id: 'd', name: 'f', input: {} },
      ],
      false,
    ],
  ])('the blocks %j are kept in original form only if the message cannot hold them', (blocks, isKept) => {
    expect(parse(messagesReply(blocks)).original).toEqual(isKept ? { api: 'messages', output: blocks } : undefined)
  })

  test('without text has the content null', () => {
    const blocks = [
      { type: 'text', text: '' },
      { type: 'tool_use', id: 'c', name: 'look', input: {} },
    ]
    expect(parse(messagesReply(blocks)).message.content).toBeNull()
    expect(parse(messagesReply([])).message).toEqual({ role: 'assistant', content: null })
  })

  test.each([
    ['end_turn', 'stop'],
    ['stop_sequence', 'stop'],
    ['max_tokens', 'length'],
    ['model_context_window_exceeded', 'length'],
    ['pause_turn', 'length'],
    ['tool_use', 'tool_calls'],
    ['refusal', 'content_filter'],
    ['something_new', 'stop'],
  ])('with stop reason %s', (reason, finishReason) => {
    expect(parse(messagesReply([{ type: 'text', text: 'x' }], { stop_reason: reason })).finishReason).toBe(finishReason)
  })

  test.each([
    ['no end', messagesReply([], { stop_reason: null }), 'model_truncated'],
    ['no object', 'text', 'model_malformed'],
    ['no content', messagesReply([], { content: null }), 'model_malformed'],
    ['a block that is none', messagesReply([], { content: ['x'] }), 'model_malformed'],
    ['a text that is none', messagesReply([{ type: 'text', text: 5 }]), 'model_malformed'],
    ['a call without a name', messagesReply([{ type: 'tool_use', id: 'c', input: {} }]), 'model_malformed'],
    ['overload', { type: 'error', error: { type: 'overloaded_error', message: 'x' } }, 'model_overloaded'],
    ['a rate', { type: 'error', error: { type: 'rate_limit_error', message: 'x' } }, 'model_rate_limited'],
    ['a failure', { type: 'error', error: { type: 'api_error', message: 'x' } }, 'model_server_error'],
    [
      'too long',
      { type: 'error', error: { type: 'invalid_request_error', message: 'prompt is too long: 3 tokens > 2 maximum' } },
      'context_length',
    ],
  ])('is refused: %s', async (_name, body, code) => {
    expect(await codeOf(() => parse(body))).toBe(code)
  })
})
