import { describe, expect, test } from 'vitest'
import { codeOf, failureOf } from '../../../test/support/inference/code-of.ts'
import { dialectOptions } from '../../../test/support/inference/dialect-options.ts'
import { foldDeltas } from '../../../test/support/inference/collecting-sink.ts'
import type { ClientApi, Json, Message, OtherPart } from '../../schema/index.ts'
import type { ModelRequest } from '../backend.ts'
import { type DialectOptions, EventDraft } from '../client-side.ts'
import { ResponsesDialect } from './write-request.ts'

const dialect = (options: Partial<DialectOptions> = {}): ResponsesDialect =>
  new ResponsesDialect(dialectOptions('responses', options))

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

describe('content that only one API supports', () => {
  const other = (value: Json, api: ClientApi = 'responses'): OtherPart => ({ type: 'other', api, value })

  test('is sent unchanged to that API, as an item or a part', () => {
    const file = { type: 'input_file', file_id: 'f' }
    const call = { type: 'custom_tool_call', call_id: 'c1', name: 'patch', input: 'x' }
    const output = { type: 'custom_tool_call_output', call_id: 'c1', output: 'done' }
    const approval = { type: 'mcp_approval_response', approval_request_id: 'r', approve: true }
    const messages: Message[] = [
      { role: 'user', content: [other(file)] },
      { role: 'assistant', content: null, others: [other(call)] },
      { role: 'tool', tool_call_id: 'c1', content: [other(output)] },
      { role: 'tool', tool_call_id: 'c2', content: [other(file)] },
      { role: 'user', content: [other(approval)] },
    ]
    expect(JSON.parse(dialect().render({ ...ask, messages }))).toMatchObject({
      input: [
        { role: 'user', content: [file] },
        call,
        output,
        { type: 'function_call_output', call_id: 'c2', output: [file] },
        approval,
      ],
    })
  })

  test('is refused by other APIs, with its name', async () => {
    const messages: Message[] = [{ role: 'user', content: [other({ type: 'input_audio' }, 'chat')] }]
    const error = await failureOf(() => dialect().render({ ...ask, messages }))
    expect(error).toMatchObject({ code: 'model_rejected', data: { status: 400 } })
    expect(String(error)).toContain('a part of the chat API (input_audio) is not supported by the Responses API')
  })
})

test('a request holds its messages, tools and sampling', () => {
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

test('extra cannot change the conversation or have it stored', () => {
  for (const key of ['input', 'stream', 'store', 'previous_response_id', 'conversation', 'instructions', 'prompt']) {
    const render = (): string => dialect().render({ ...ask, sampling: { extra: { [key]: null } } })
    expect(render, key).toThrow(/sampling\.extra cannot set/)
  }
})

test('extra cannot repeat a field of the request, but may set other fields', () => {
  const says = { ...ask, parallelToolCalls: true, responseFormat: { kind: 'json_object' } } as const
  const plain = { ...ask, tools: [] }
  for (const name of ['tool_choice', 'parallel_tool_calls', 'text']) {
    const sampling = { extra: { [name]: {} } }
    expect(() => dialect().render({ ...says, sampling }), name).toThrow(`sampling.extra cannot set "${name}"`)
    expect(JSON.parse(dialect().render({ ...plain, sampling }))).toMatchObject({ [name]: {} })
  }
  const sampling = { extra: { verbosity: 'low', text: {} } }
  expect(() => dialect().render({ ...plain, sampling })).toThrow('sampling.extra cannot set "text"')
})

test('further fields of a request are sent', () => {
  const schema = { name: 'answer', schema: { type: 'object' } }
  const asked = { ...ask, parallelToolCalls: false, responseFormat: { kind: 'json_schema', ...schema } } as const
  const writer = dialect()
  expect(JSON.parse(writer.render(asked))).toMatchObject({
    parallel_tool_calls: false,
    text: { format: { type: 'json_schema', ...schema } },
  })
  expect(JSON.parse(writer.render({ ...ask, responseFormat: { kind: 'json_object' } }))).toMatchObject({
    text: { format: { type: 'json_object' } },
  })
  const short = { ...asked, sampling: { extra: { verbosity: 'low', user: 'u' } } }
  const { text, verbosity, user } = JSON.parse(writer.render(short)) as Record<string, unknown>
  expect({ text, verbosity, user }).toEqual({
    text: { format: { type: 'json_schema', ...schema }, verbosity: 'low' },
    verbosity: undefined,
    user: 'u',
  })
  expect(JSON.parse(writer.render({ ...ask, stream: true }))).toMatchObject({ stream: true })
  expect(JSON.parse(writer.render({ ...ask, stream: false }))).not.toHaveProperty('stream')
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
    others: [{ type: 'other', api: 'responses', value: { type: 'web_search_call', id: 'w' } }],
  },
  finishReason: 'tool_calls',
  usage: { calls: 1, input: 9, cachedInput: 3, output: 6, reasoning: 2 },
  original: { api: 'responses', output: response.output },
}
const onlyText = { ...response, output: [{ type: 'message', content: [{ type: 'output_text', text: 'hi' }] }] }

describe('replies', () => {
  test('a whole response is read', () => {
    expect(dialect().parse(response, {})).toEqual(reply)
  })

  test('long log-probabilities do not discard the original output, which holds the reasoning', () => {
    const logprobs = [{ token: 'hi', logprob: -0.1234567890123456, bytes: [104, 105], top_logprobs: [] }]
    const output = [
      { type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: 'signed' },
      { type: 'message', id: 'msg_1', content: [{ type: 'output_text', text: 'hi', logprobs }] },
      { type: 'function_call', call_id: 'c', name: 'look', arguments: '{"id":9007199254740993}' },
    ]
    const { message, original } = dialect().parse({ ...response, output }, {})
    expect(original).toEqual({ api: 'responses', output })
    expect(message.tool_calls?.[0]?.function.arguments).toBe('{"id":9007199254740993}')
  })

  test.each([
    ['max_output_tokens', 'length'],
    ['content_filter', 'content_filter'],
    ['something that nobody knows', 'length'],
  ])('a response that is incomplete because of %s is read', (reason, finishReason) => {
    const body = { ...onlyText, status: 'incomplete', incomplete_details: { reason } }
    expect(dialect().parse(body, {}).finishReason).toBe(finishReason)
  })

  test('a refusal is read', () => {
    const body = { ...onlyText, output: [{ type: 'message', content: [{ type: 'refusal', refusal: 'no' }] }] }
    expect(dialect().parse(body, {}).message).toEqual({ role: 'assistant', content: null, refusal: 'no' })
  })

  test('output with fields of another API is read', () => {
    const output = [
      { type: 'message', role: 'assistant', content: 'plain, ' },
      { type: 'message', role: 'assistant', content: [{ type: 'text', text: 'and in a part' }] },
      { type: 'function_call', call_id: 'c', name: 'look', arguments: { at: 1 } },
    ]
    const expected = {
      role: 'assistant',
      content: 'plain, and in a part',
      tool_calls: [{ id: 'c', type: 'function', function: { name: 'look', arguments: '{"at":1}' } }],
    }
    expect(dialect().parse({ status: 'completed', output }, {}).message).toEqual(expected)
    const stream = dialect().assemble({})
    const event = new EventDraft(
      JSON.stringify({ type: 'response.completed', response: { status: 'completed', output } }),
    )
    stream.onEvent(event.data, event)
    expect(foldDeltas(event.deltas)).toEqual(expected)
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

  test('the last event holds the response', () => {
    const stream = assemble([{ type: 'response.created', response: { status: 'in_progress' } }])
    expect(stream.hasOutput).toBe(false)
    stream.onEvent(JSON.stringify({ type: 'response.output_text.delta', delta: 'hi' }))
    expect(stream.hasOutput).toBe(true)
    expect(stream.isComplete).toBe(false)
    stream.onEvent(JSON.stringify({ type: 'response.completed', response }))
    expect(stream.isComplete).toBe(true)
    expect(stream.reply()).toEqual(reply)
  })

  test('items replace an output that was left out', () => {
    const stream = assemble([
      ...response.output.map((item) => ({ type: 'response.output_item.done', item })),
      { type: 'response.completed', response: { ...response, output: [] } },
    ])
    expect(stream.reply()).toEqual(reply)
  })

  describe('deltas', () => {
    const told = (events: readonly object[]) => {
      const stream = dialect().assemble({})
      const deltas = events.flatMap((said) => {
        const event = new EventDraft(JSON.stringify(said))
        stream.onEvent(event.data, event)
        return event.deltas
      })
      return { deltas, message: foldDeltas(deltas), stream }
    }
    const done = response.output.map((item, output_index) => ({
      type: 'response.output_item.done',
      output_index,
      item,
    }))
    const completed = { type: 'response.completed', response }

    // What only this API can say is in no delta.
    const { others: _own, ...said } = reply.message

    test('without delta events, an item is sent when it ends, or at the end of the stream', () => {
      expect(told([...done, completed]).message).toEqual(said)
      expect(told([completed]).message).toEqual(said)
      expect(told(done).stream.partial()).toEqual({ message: reply.message })
    })

    test('a summary in several parts is read like a whole one', () => {
      const piece = (summary_index: number, delta: string): object => ({
        type: 'response.reasoning_summary_text.delta',
        output_index: 0,
        summary_index,
        delta,
      })
      const events = [piece(0, 'o'), piece(0, 'ne'), piece(1, 'two'), ...done, completed]
      expect(told(events).message).toEqual(said)
    })

    test('a summary beside full reasoning is left out, as in a whole reply', () => {
      const item = {
        type: 'reasoning',
        content: [{ type: 'reasoning_text', text: 'all of it' }],
        summary: [{ type: 'summary_text', text: 'short' }],
      }
      const whole = { ...response, output: [item, ...onlyText.output] }
      const events = [
        { type: 'response.reasoning_text.delta', output_index: 0, content_index: 0, delta: 'all of it' },
        { type: 'response.reasoning_summary_text.delta', output_index: 0, summary_index: 0, delta: 'short' },
        { type: 'response.output_text.delta', output_index: 1, content_index: 0, delta: 'hi' },
        { type: 'response.completed', response: whole },
      ]
      const { message, stream } = told(events)
      expect(message).toEqual(stream.reply().message)
    })

    test('arguments received in part are completed', () => {
      const place = { output_index: 2 }
      const events = [
        { type: 'response.output_item.added', ...place, item: { ...response.output[2], arguments: '' } },
        { type: 'response.function_call_arguments.delta', ...place, delta: '{"x"' },
        done[2] ?? {},
      ]
      expect(told(events).deltas).toEqual([
        { kind: 'tool-call', index: 0, id: 'c2', name: 'look' },
        { kind: 'arguments', index: 0, text: '{"x"' },
        { kind: 'arguments', index: 0, text: ':1}' },
      ])
    })

    test('without events there is no partial reply', () => {
      expect(dialect().assemble({}).partial()).toEqual({ message: { role: 'assistant', content: null } })
    })
  })

  test('response.incomplete ends a stream as well', () => {
    const incomplete = { ...onlyText, status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } }
    expect(assemble([{ type: 'response.incomplete', response: incomplete }]).reply().finishReason).toBe('length')
  })

  test('deltas without an item are an error', async () => {
    const delta = { type: 'response.output_text.delta', delta: 'hi' }
    const empty = { type: 'response.completed', response: { ...response, output: [] } }
    expect(await codeOf(() => assemble([delta, empty]))).toBe('model_malformed')
    expect(assemble([empty]).reply().message.content).toBeNull()
  })

  test('a stream without an end event gives no reply', async () => {
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
