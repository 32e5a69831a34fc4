import { describe, expect, test } from 'vitest'
import { codeOf, failureOf } from '../../../test/support/inference/code-of.ts'
import { dialectOptions } from '../../../test/support/inference/dialect-options.ts'
import { foldDeltas } from '../../../test/support/inference/collecting-sink.ts'
import { plainRequest as ask } from '../../../test/support/inference/plain-request.ts'
import { seededRandom } from '../../kit/index.ts'
import type { Json, Message, ToolDefinition } from '../../schema/index.ts'
import type { ModelRequest } from '../backend.ts'
import { ChatDialect } from './write-request.ts'
import { type DialectOptions, EventDraft } from '../client-side.ts'
import { scanReply } from '../tokens/token-scanner.ts'

const dialect = (options: Partial<DialectOptions> = {}): ChatDialect =>
  new ChatDialect(dialectOptions('chat/completions', options))

const tool: ToolDefinition = { type: 'function', function: { name: 'add', parameters: { type: 'object' } } }

const rendered = (request: Partial<ModelRequest>, options: Partial<DialectOptions> = {}): unknown =>
  JSON.parse(dialect(options).render({ ...ask, ...request }))

describe('requests', () => {
  test('messages are sent unchanged, without further fields', () => {
    expect(rendered({})).toEqual({ model: 'm', messages: ask.messages })
  })

  test('content of this API is sent unchanged; content of another API is refused', async () => {
    const said = (api: 'chat' | 'messages', value: Json): Message => ({
      role: 'user',
      content: [
        { type: 'text', text: 'hear' },
        { type: 'other', api, value },
      ],
    })
    const audio = { type: 'input_audio', input_audio: { data: 'x', format: 'wav' } }
    expect(rendered({ messages: [said('chat', audio)] })).toMatchObject({
      messages: [{ role: 'user', content: [{ type: 'text', text: 'hear' }, audio] }],
    })
    const error = await failureOf(() => rendered({ messages: [said('messages', { type: 'document' })] }))
    expect(error).toMatchObject({ code: 'model_rejected', data: { status: 400 } })
    expect(String(error)).toContain(
      'a part of the messages API (document) is not supported by the Chat Completions API',
    )
  })

  test('is_error of a tool result is left out, because Chat has no field for it', () => {
    const failed: Message = { role: 'tool', tool_call_id: 'c1', content: 'no such file', is_error: true }
    expect(rendered({ messages: [failed] })).toEqual({
      model: 'm',
      messages: [{ role: 'tool', tool_call_id: 'c1', content: 'no such file' }],
    })
  })

  test('fields of sampling.extra come last', () => {
    const sampling = {
      temperature: 0.5,
      topP: 0.9,
      maxTokens: 10,
      stop: ['x'],
      seed: 3,
      reasoningEffort: 'low',
      extra: { top_k: 5, temperature: 0.7 },
    }
    expect(rendered({ sampling })).toEqual({
      model: 'm',
      messages: ask.messages,
      temperature: 0.7,
      top_p: 0.9,
      max_tokens: 10,
      stop: ['x'],
      seed: 3,
      reasoning_effort: 'low',
      top_k: 5,
    })
    expect(rendered({ sampling: { maxTokens: 10 } }, { isOpenAi: true })).toMatchObject({ max_completion_tokens: 10 })
  })

  test('extra cannot break how the reply is read', () => {
    const sampling = { extra: { stream: true } }
    expect(() => dialect().render({ ...ask, sampling })).toThrow(/sampling\.extra cannot set "stream"/)
  })

  test('extra cannot repeat a field of the request', () => {
    const responseFormat = { kind: 'json_object' } as const
    const says = { tools: [tool], toolChoice: 'auto', parallelToolCalls: true, responseFormat } as const
    for (const [name, value] of Object.entries({
      tool_choice: 'none',
      parallel_tool_calls: false,
      response_format: { type: 'text' },
    })) {
      const sampling = { extra: { [name]: value } }
      expect(() => rendered({ ...says, sampling }), name).toThrow(`cannot set "${name}"`)
      expect(rendered({ sampling })).toMatchObject({ [name]: value })
    }
  })

  test('extra cannot switch off the recorded fields or the usage', () => {
    const extra = { logprobs: false, return_token_ids: false, return_meta_info: false, stream_options: null, top_k: 5 }
    const request = { sampling: { extra }, captureTokens: true, stream: true }
    expect(rendered(request)).toMatchObject({
      logprobs: true,
      return_token_ids: true,
      stream_options: { include_usage: true },
      top_k: 5,
    })
    expect(rendered(request, { engine: 'sglang' })).toMatchObject({ logprobs: true, return_meta_info: true })
    expect(rendered({ sampling: { extra } })).toMatchObject({ logprobs: false })
  })

  test('tools and the tool choice', () => {
    expect(rendered({ tools: [tool], toolChoice: 'required' })).toMatchObject({
      tools: [tool],
      tool_choice: 'required',
    })
    expect(rendered({ tools: [tool], toolChoice: { name: 'add' } })).toMatchObject({
      tool_choice: { type: 'function', function: { name: 'add' } },
    })
    expect(rendered({ toolChoice: 'auto' })).not.toHaveProperty('tool_choice')
  })

  test('parallel_tool_calls is sent only with tools; response_format is sent', () => {
    expect(rendered({ tools: [tool], parallelToolCalls: false })).toMatchObject({ parallel_tool_calls: false })
    expect(rendered({ parallelToolCalls: true })).not.toHaveProperty('parallel_tool_calls')
    expect(rendered({ responseFormat: { kind: 'json_object' } })).toMatchObject({
      response_format: { type: 'json_object' },
    })
    const schema = { name: 'answer', schema: { type: 'object' }, strict: true }
    expect(rendered({ responseFormat: { kind: 'json_schema', ...schema } })).toMatchObject({
      response_format: { type: 'json_schema', json_schema: schema },
    })
  })

  test('the stream field of a request overrides the one of the model', () => {
    const writer = dialect()
    const sampling = { temperature: 1 }
    const isStream = (stream?: boolean): boolean =>
      writer.render({ ...ask, sampling, ...(stream !== undefined && { stream }) }).includes('"stream":true')
    // The same sampling each time: what was written for one is kept apart from the other.
    expect([isStream(), isStream(true), isStream(false), isStream(true)]).toEqual([false, true, false, true])
    expect(rendered({ stream: false }, { stream: true })).not.toHaveProperty('stream')
  })

  test('a stream asks for usage, and a capture asks for tokens', () => {
    expect(rendered({ captureTokens: true }, { stream: true })).toMatchObject({
      stream: true,
      stream_options: { include_usage: true },
      logprobs: true,
      return_token_ids: true,
    })
  })

  test('SGLang is asked for tokens with its own fields, and never in a stream', () => {
    const asked = rendered({ captureTokens: true }, { stream: true, engine: 'sglang' })
    expect(asked).toMatchObject({
      logprobs: true,
      return_meta_info: true,
      return_prompt_token_ids: true,
      return_routed_experts: true,
    })
    for (const field of ['return_token_ids', 'stream', 'stream_options']) expect(asked).not.toHaveProperty(field)
    expect(rendered({}, { stream: true, engine: 'sglang' })).toMatchObject({ stream: true })
  })

  test('reasoning is sent back or left out, as configured', () => {
    const messages: Message[] = [{ role: 'assistant', content: 'a', reasoning_content: 'because' }]
    expect(rendered({ messages })).toMatchObject({ messages })
    expect(rendered({ messages }, { sendReasoning: false })).toMatchObject({
      messages: [{ role: 'assistant', content: 'a' }],
    })
    expect(JSON.stringify(rendered({ messages }, { sendReasoning: false }))).not.toContain('because')
    const thinking = { type: 'thinking', thinking: [{ type: 'text', text: 'because' }] }
    expect(rendered({ messages }, { isMistral: true })).toMatchObject({
      messages: [{ role: 'assistant', content: [thinking, { type: 'text', text: 'a' }] }],
    })
    expect(JSON.stringify(rendered({ messages }, { isMistral: true }))).not.toContain('reasoning_content')
  })

  test('each turn serialises only the new messages', () => {
    let written = 0
    const counted = (content: string): Message => {
      const message = { role: 'user', content, toJSON: () => ((written += 1), { role: 'user', content }) }
      return message as Message
    }
    const writer = dialect()
    const messages: Message[] = []
    const tools = [Object.assign({ toJSON: () => ((written += 1), tool) }, tool)]
    for (let turn = 0; turn < 10; turn += 1) {
      messages.push(counted(`turn ${turn}`))
      const body = JSON.parse(writer.render({ ...ask, messages, tools })) as { messages: unknown[] }
      expect(body.messages).toHaveLength(turn + 1)
    }
    expect(written).toBe(11)
  })
})

const parse = (body: unknown, headers = {}) => dialect().parse(body, { headers })
const choice = (message: object, finish: unknown = 'stop', more: object = {}): object => ({
  choices: [{ index: 0, message: { role: 'assistant', ...message }, finish_reason: finish, ...more }],
})

describe('replies', () => {
  test('text, reasoning under either name, refusal and usage are read', () => {
    const usage = {
      prompt_tokens: 10,
      completion_tokens: 5,
      prompt_tokens_details: { cached_tokens: 4 },
      completion_tokens_details: { reasoning_tokens: 2 },
    }
    expect(parse({ ...choice({ content: 'hi', reasoning_content: 'r', refusal: null }), usage })).toEqual({
      message: { role: 'assistant', content: 'hi', reasoning_content: 'r' },
      finishReason: 'stop',
      usage: { calls: 1, input: 10, cachedInput: 4, output: 5, reasoning: 2 },
    })
    expect(parse(choice({ content: null, reasoning: 'r', refusal: 'no' })).message).toEqual({
      role: 'assistant',
      content: null,
      reasoning_content: 'r',
      refusal: 'no',
    })
  })

  test('reasoning tokens that the total counts in addition to the output are added to the output', () => {
    const used = (total_tokens: number) =>
      parse({
        ...choice({ content: 'hi' }),
        usage: {
          prompt_tokens: 10,
          completion_tokens: 5,
          total_tokens,
          completion_tokens_details: { reasoning_tokens: 100 },
        },
      }).usage
    // xAI's way.
    expect(used(115)).toEqual({ calls: 1, input: 10, cachedInput: 0, output: 105, reasoning: 100 })
    expect(used(15)).toMatchObject({ output: 5, reasoning: 100 })
    expect(used(20)).toMatchObject({ output: 5, reasoning: 100 })
  })

  test('thinking parts within the content are read as reasoning', () => {
    const thinking = {
      type: 'thinking',
      thinking: [
        { type: 'text', text: 'so' },
        { type: 'text', text: ' be it' },
      ],
    }
    const content = [thinking, { type: 'text', text: 'h' }, { type: 'text', text: 'i' }]
    const { message, original } = parse(choice({ content }))
    expect(message).toEqual({ role: 'assistant', content: 'hi', reasoning_content: 'so be it' })
    expect(original?.output).toEqual([{ role: 'assistant', content }])
    const call = { id: 'c', type: 'function', function: { name: 'look', arguments: '{}' } }
    expect(parse(choice({ content: [thinking], tool_calls: [call] }, 'tool_calls')).message).toEqual({
      role: 'assistant',
      content: null,
      reasoning_content: 'so be it',
      tool_calls: [call],
    })
  })

  test('output that our message cannot hold is kept in its original form', () => {
    const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,AA' } }
    const drawn = { role: 'assistant', content: [{ type: 'text', text: 'look' }, image] }
    expect(parse(choice(drawn))).toMatchObject({ message: { content: 'look' }, original: { output: [drawn] } })
    const plain = { role: 'assistant', content: [{ type: 'text', text: 'look' }], function_call: null }
    expect(parse(choice(plain))).not.toHaveProperty('original')
    // What clients are answered that still send `functions`.
    const called = { role: 'assistant', content: null, function_call: { name: 'look', arguments: '{"at":1}' } }
    expect(parse(choice(called, 'function_call')).original).toEqual({ api: 'chat', output: [called] })
    const stream = dialect().assemble({}, false)
    for (const function_call of [{ name: 'look', arguments: '' }, { arguments: '{"at"' }, { arguments: ':1}' }]) {
      stream.onEvent(JSON.stringify({ choices: [{ index: 0, delta: { function_call } }] }))
    }
    stream.onEvent(JSON.stringify({ choices: [{ index: 0, delta: {}, finish_reason: 'function_call' }] }))
    expect(stream.reply().original).toEqual({ api: 'chat', output: [called] })
  })

  test('a field named __proto__ is read like any other', () => {
    const odd = JSON.parse('{"content":"hi","__proto__":{"polluted":"yes"},"extra":{"__proto__":{"polluted":"yes"}}}')
    expect(parse(choice(odd)).original?.output).toHaveLength(1)
    expect(({} as Record<string, unknown>)['polluted']).toBeUndefined()
  })

  test('tool calls without ids get ids, and their arguments stay unchanged', () => {
    const tool_calls = [
      { id: 'x', type: 'function', function: { name: 'add', arguments: '{"a":1' } },
      { type: 'function', function: { name: 'sub', arguments: '{}' } },
      { id: '', type: 'function', function: { name: 'mul', arguments: { a: 1 } } },
    ]
    const reply = parse(choice({ content: null, tool_calls }, 'stop'))
    expect(reply.finishReason).toBe('tool_calls')
    expect(reply.message.tool_calls).toEqual([
      { id: 'x', type: 'function', function: { name: 'add', arguments: '{"a":1' } },
      { id: 'call_1', type: 'function', function: { name: 'sub', arguments: '{}' } },
      { id: 'call_2', type: 'function', function: { name: 'mul', arguments: '{"a":1}' } },
    ])
  })

  test.each([
    ['stop', 'stop'],
    ['length', 'length'],
    ['max_tokens', 'length'],
    ['model_context_window_exceeded', 'length'],
    ['repetition', 'length'],
    ['function_call', 'tool_calls'],
    ['end_turn', 'stop'],
    ['content_filter', 'content_filter'],
    ['sensitive', 'content_filter'],
    ['MAX_TOKENS', 'length'],
    ['SAFETY', 'content_filter'],
    ['something new', 'stop'],
    ['constructor', 'stop'],
  ])('finish reason %s', (said, expected) => {
    expect(parse(choice({ content: 'a' }, said)).finishReason).toBe(expected)
  })

  test('token ids, log-probabilities and the weight version are read', () => {
    const body = {
      ...choice({ content: 'a' }, 'stop', {
        token_ids: [5, 6],
        logprobs: { content: [{ logprob: -0.5 }, { logprob: -1.25 }] },
      }),
      prompt_token_ids: [1, 2, 3],
      weight_version: 7,
    }
    expect(parse(body).tokens).toEqual({
      promptIds: Int32Array.of(1, 2, 3),
      ids: Int32Array.of(5, 6),
      logprobs: Float32Array.of(-0.5, -1.25),
      version: '7',
    })
    const { weight_version: _version, ...plain } = body
    expect(parse(plain, { 'x-weight-version': 'v3' }).tokens?.version).toBe('v3')
    expect(parse({ ...plain, metadata: { weight_version: 'v4' } }).tokens?.version).toBe('v4')
  })

  test('token ids and log-probabilities of SGLang are read, whether few or many', () => {
    for (const count of [3, 3000]) {
      const ids = Array.from({ length: count }, (_, index) => 2 * index + 1)
      const more = {
        prompt_token_ids: [1, 2],
        logprobs: { content: ids.map((id) => ({ token: 't', logprob: -id })) },
        meta_info: { weight_version: 'v9', output_token_logprobs: ids.map((id) => [-id, id, null]) },
      }
      const expected = {
        promptIds: Int32Array.of(1, 2),
        ids: Int32Array.from(ids),
        logprobs: Float32Array.from(ids, (id) => -id),
        version: 'v9',
      }
      // Newer versions may list the ids a second time.
      for (const again of [{}, { response_token_ids: ids }]) {
        const body = choice({ content: 'a' }, 'stop', { ...more, ...again })
        const { rest, tokens } = scanReply(Buffer.from(JSON.stringify(body)))
        expect(parse(body).tokens).toEqual(expected)
        expect(dialect().parse(JSON.parse(rest), {}, tokens).tokens).toEqual(expected)
      }
    }
    const extension = { sgl_ext: { input_token_ids: [4], output_token_logprobs: [[-1, 5, 'x']] } }
    expect(parse(choice({ content: 'a' }, 'stop', extension)).tokens).toEqual({
      promptIds: Int32Array.of(4),
      ids: Int32Array.of(5),
      logprobs: Float32Array.of(-1),
    })
  })

  test('token fields are read from the chunks of a stream', () => {
    for (const prompt of [2, 4000]) {
      const promptIds = Array.from({ length: prompt }, (_, index) => index)
      const piece = (id: number, version: string, more: object = {}) =>
        JSON.stringify({
          choices: [
            {
              index: 0,
              delta: { content: 'a' },
              logprobs: { content: [{ token: 'a', logprob: -id }] },
              meta_info: { weight_version: version, output_token_logprobs: [[-id, id, 'a']] },
              ...more,
            },
          ],
        })
      const stream = dialect().assemble({}, true)
      stream.onEvent(piece(5, 'v1', { prompt_token_ids: promptIds }))
      stream.onEvent(piece(6, 'v2', { finish_reason: 'stop' }))
      expect(stream.reply().tokens).toEqual({
        promptIds: Int32Array.from(promptIds),
        ids: Int32Array.of(5, 6),
        logprobs: Float32Array.of(-5, -6),
        version: 'v1',
        versionSpans: [
          { from: 0, version: 'v1' },
          { from: 1, version: 'v2' },
        ],
      })
    }
  })

  test.each([
    ['a list', { token_ids: [5, 6], logprobs: { content: [{ logprob: -1 }, { logprob: null }] } }],
    ['vLLM’s number for it', { token_ids: [5, 6], logprobs: { content: [{ logprob: -1 }, { logprob: -9999 }] } }],
    [
      'pairs',
      {
        meta_info: {
          output_token_logprobs: [
            [-1, 5],
            [null, 6],
          ],
        },
      },
    ],
  ])('an unknown log-probability in %s is NaN, and the others are kept', (_where, given) => {
    const { tokens } = parse(choice({ content: 'ab' }, 'stop', given))
    expect(tokens).toEqual({ ids: Int32Array.of(5, 6), logprobs: Float32Array.of(-1, Number.NaN) })
  })

  test('if no log-probability is known, the list is empty', () => {
    const unknown = { token_ids: [5], logprobs: { content: [{ logprob: null }] } }
    expect(parse(choice({ content: 'a' }, 'stop', unknown)).tokens).toEqual({
      ids: Int32Array.of(5),
      logprobs: new Float32Array(),
    })
  })

  test.each([
    [
      'a pair of tokens that is none',
      choice({}, 'stop', { meta_info: { output_token_logprobs: [[-1]] } }),
      'model_malformed',
    ],
    ['no object', 'text', 'model_malformed'],
    ['no choices', { choices: [] }, 'model_malformed'],
    ['no message', { choices: [{ finish_reason: 'stop' }] }, 'model_malformed'],
    ['no finish reason', choice({ content: 'a' }, null), 'model_truncated'],
    ['an aborted generation', choice({ content: 'a' }, 'abort'), 'model_truncated'],
    ['an interrupted one', choice({ content: 'a' }, 'insufficient_system_resource'), 'model_truncated'],
    ['one that lost its server', choice({ content: 'a' }, 'network_error'), 'model_truncated'],
    ['a tool call without a name', choice({ tool_calls: [{ function: { arguments: '{}' } }] }), 'model_malformed'],
    [
      'ids that do not match',
      choice({}, 'stop', { token_ids: [1], logprobs: { content: [{ logprob: 0 }, { logprob: 0 }] } }),
      'model_malformed',
    ],
    ['an id that is none', choice({}, 'stop', { token_ids: [1.5] }), 'model_malformed'],
    [
      'a log-probability that is none',
      choice({}, 'stop', { token_ids: [1], logprobs: { content: [{ logprob: 'x' }] } }),
      'model_malformed',
    ],
    [
      'experts in an unknown form',
      choice({}, 'stop', { token_ids: [1], routed_experts: { data: '?' } }),
      'model_malformed',
    ],
    ['an error in a 200', { error: { message: 'slow down', code: 'rate_limit_exceeded' } }, 'model_rate_limited'],
    ['an error with a status of its own', { error: { message: 'gone', code: 503 } }, 'model_overloaded'],
  ])('%s', async (_name, body, code) => {
    expect(await codeOf(() => parse(body))).toBe(code)
  })
})

describe('streams', () => {
  const assemble = (events: readonly string[]) => {
    const stream = dialect({ stream: true }).assemble({}, true)
    for (const event of events) stream.onEvent(event)
    return stream
  }
  const chunk = (delta: object, finish: string | null = null, more: object = {}): string =>
    JSON.stringify({ choices: [{ index: 0, delta, finish_reason: finish, ...more }] })

  test('a reply cut into random chunks is read like the whole one', () => {
    for (let seed = 0; seed < 200; seed += 1) {
      const random = seededRandom(seed)
      const text = (length: number): string =>
        Array.from({ length }, () => 'ab é漢🙂{}"'[Math.floor(random() * 10)] ?? '').join('')
      const calls = Array.from({ length: Math.floor(random() * 3) }, (_, index) => ({
        id: `id-${index}`,
        type: 'function',
        function: { name: `tool${index}`, arguments: text(20) },
      }))
      const message = {
        content: calls.length > 0 ? null : text(30) || 'x',
        ...(random() < 0.5 && { reasoning_content: text(10) || 'r' }),
        ...(calls.length > 0 && { tool_calls: calls }),
      }
      const pieces = (whole: string): string[] => {
        const cut = whole.match(/.{1,3}/gsu) ?? []
        return cut.filter((piece) => piece !== '')
      }
      const deltas: object[] = [{ role: 'assistant', content: '' }]
      for (const piece of pieces(message.reasoning_content || '')) deltas.push({ reasoning_content: piece })
      for (const piece of pieces(message.content ?? '')) deltas.push({ content: piece })
      // Parallel calls begin in order and may then be interleaved: each piece says which call it belongs to.
      const callPieces = calls.flatMap(({ id, function: { name, arguments: given } }, index) => [
        {
          at: (index + random()) * 0.05,
          delta: { tool_calls: [{ index, id, type: 'function', function: { name, arguments: '' } }] },
        },
        ...pieces(given).map((piece, order) => ({
          at: 0.2 + order + random() * 0.1,
          delta: { tool_calls: [{ index, function: { arguments: piece } }] },
        })),
      ])
      for (const { delta } of callPieces.sort((one, other) => one.at - other.at)) deltas.push(delta)
      const finish = calls.length > 0 ? 'tool_calls' : 'stop'
      const usage = { prompt_tokens: 3, completion_tokens: 4 }
      const stream = assemble([
        ...deltas.map((delta) => chunk(delta)),
        chunk({}, finish),
        JSON.stringify({ choices: [], usage }),
        '[DONE]',
      ])
      expect(stream.isComplete).toBe(true)
      expect(stream.reply(), `seed ${seed}`).toEqual(parse({ ...choice(message, finish), usage }))
    }
  })

  test('a call cut off by vLLM is text in a whole reply and a call in a stream', () => {
    // What vLLM 0.32 wrote for the same tokens, with `tool_choice: required` and `max_tokens`.
    const written = '<tool_call>{"name": "calculate", "arguments": 4276'
    const whole = parse(choice({ content: written, refusal: null, reasoning: null }, 'length', { stop_reason: null }))
    expect(whole).toMatchObject({ message: { content: written }, finishReason: 'length' })
    expect(whole.message.tool_calls).toBeUndefined()
    const call = { id: 'chatcmpl-tool-b5', type: 'function', index: 0, function: { name: 'calculate' } }
    const stream = assemble([
      chunk({ role: 'assistant', content: '' }),
      chunk({ content: null, tool_calls: [call] }, null, { token_ids: null }),
      chunk({}, null, { token_ids: null }),
      chunk({ content: null, tool_calls: [{ index: 0, function: { arguments: '42' } }] }, null, { token_ids: null }),
      chunk({ content: null, tool_calls: [{ index: 0, function: { arguments: '76' } }] }, 'length', {
        stop_reason: null,
      }),
      '[DONE]',
    ])
    expect(stream.reply()).toMatchObject({
      message: { content: null, tool_calls: [{ function: { name: 'calculate', arguments: '4276' } }] },
      finishReason: 'length',
    })
  })

  test('thinking parts within the content become reasoning deltas', () => {
    const stream = dialect({ stream: true }).assemble({}, true)
    const event = new EventDraft('')
    const thinking = (text: string): object => ({ type: 'thinking', thinking: [{ type: 'text', text }] })
    for (const content of [[thinking('so')], [thinking('!'), { type: 'text', text: 'h' }], 'i'])
      stream.onEvent(chunk({ content }), event)
    stream.onEvent(chunk({}, 'stop'), event)
    expect(event.deltas).toEqual([
      { kind: 'reasoning', text: 'so' },
      { kind: 'reasoning', text: '!' },
      { kind: 'content', text: 'h' },
      { kind: 'content', text: 'i' },
    ])
    const { message, original } = stream.reply()
    expect(message).toEqual({ role: 'assistant', content: 'hi', reasoning_content: 'so!' })
    expect(original?.output).toEqual([{ role: 'assistant', content: [thinking('so!'), { type: 'text', text: 'hi' }] }])
  })

  test('token ids and log-probabilities of the chunks are joined', () => {
    const stream = assemble([
      JSON.stringify({ prompt_token_ids: [1, 2], choices: [{ index: 0, delta: { role: 'assistant' } }] }),
      chunk({ content: 'a' }, null, { token_ids: [5], logprobs: { content: [{ logprob: -1 }] } }),
      chunk({ content: 'b' }, 'stop', { token_ids: [6, 7], logprobs: { content: [{ logprob: -2 }, { logprob: -3 }] } }),
    ])
    expect(stream.reply().tokens).toEqual({
      promptIds: Int32Array.of(1, 2),
      ids: Int32Array.of(5, 6, 7),
      logprobs: Float32Array.of(-1, -2, -3),
    })
  })

  describe('the weight version', () => {
    const sampled = (id: number, more: object = {}, inChoice: object = {}): string =>
      JSON.stringify({ ...more, choices: [{ index: 0, delta: { content: 'a' }, token_ids: [id], ...inChoice }] })
    const end = chunk({}, 'stop')
    const versions = (events: readonly string[], headers = {}) => {
      const stream = dialect().assemble({ headers }, true)
      for (const event of events) stream.onEvent(event)
      const { version, versionSpans } = stream.reply().tokens ?? {}
      return { version, versionSpans }
    }

    test('may change during a stream, and each event gives the version of its own tokens', () => {
      const events = [
        sampled(1, { weight_version: 4 }),
        sampled(2, { metadata: { weight_version: '4' } }),
        sampled(3, { metadata: { weight_version: '5' } }),
        sampled(4),
        sampled(5, {}, { meta_info: { weight_version: '6' } }),
        end,
      ]
      const versionSpans = [
        { from: 0, version: '4' },
        { from: 2, version: '5' },
        { from: 4, version: '6' },
      ]
      expect(versions(events)).toEqual({ version: '4', versionSpans })
    })

    test('of an event without tokens does not change the version of earlier tokens', () => {
      const events = [sampled(1, { weight_version: 4 }), JSON.stringify({ weight_version: 5, choices: [] }), end]
      expect(versions(events)).toEqual({ version: '4', versionSpans: undefined })
      const last = [sampled(1), JSON.stringify({ weight_version: 5, choices: [] }), end]
      expect(versions(last)).toEqual({ version: '5', versionSpans: undefined })
    })

    test('from the headers counts until an event gives another', () => {
      const events = [sampled(1), sampled(2, { weight_version: 'b' }), end]
      const versionSpans = [
        { from: 0, version: 'a' },
        { from: 1, version: 'b' },
      ]
      expect(versions(events, { 'x-weight-version': 'a' })).toEqual({ version: 'a', versionSpans })
      expect(versions(events)).toEqual({ version: 'b', versionSpans: undefined })
    })
  })

  test('a tool-call delta is sent once the name is known, with the final id', () => {
    const stream = dialect().assemble({}, false)
    const told = [
      chunk({ tool_calls: [{ index: 0, function: { arguments: '{' } }] }),
      chunk({ tool_calls: [{ index: 0, function: { name: 'add', arguments: '"a"' } }] }),
      chunk({ tool_calls: [{ index: 0, id: 'late', function: { arguments: ':1}' } }] }, 'tool_calls'),
    ].map((data) => {
      const event = new EventDraft(data)
      stream.onEvent(data, event)
      return event.deltas
    })
    expect(told).toEqual([
      [],
      [
        { kind: 'tool-call', index: 0, id: 'call_0', name: 'add' },
        { kind: 'arguments', index: 0, text: '{"a"' },
      ],
      [{ kind: 'arguments', index: 0, text: ':1}' }],
    ])
    expect(foldDeltas(told.flat())).toEqual(stream.reply().message)
  })

  test('a long event is read like a short one', () => {
    const promptIds = Array.from({ length: 3_000 }, (_, index) => index * 40)
    const stream = assemble([
      JSON.stringify({ prompt_token_ids: promptIds, choices: [{ index: 0, delta: { role: 'assistant' } }] }),
      chunk({ content: 'a' }, null, { token_ids: [5], logprobs: { content: [{ logprob: -1 }] } }),
      chunk({ content: 'b'.repeat(10_000) }, 'stop', {
        token_ids: [6, 7],
        logprobs: { content: [{ logprob: -2 }, { logprob: -3 }] },
        routed_experts: [[[1, 2]], [[3, 4]]],
      }),
    ])
    expect(stream.reply().tokens).toEqual({
      promptIds: Int32Array.from(promptIds),
      ids: Int32Array.of(5, 6, 7),
      logprobs: Float32Array.of(-1, -2, -3),
      routedExperts: { shape: [2, 1, 2], experts: Uint8Array.of(1, 2, 3, 4) },
    })
  })

  test('[DONE] without a finish reason does not complete a reply', async () => {
    const stream = assemble([chunk({ content: 'half' }), '[DONE]'])
    expect(stream.isComplete).toBe(false)
    expect(await codeOf(() => stream.reply())).toBe('model_truncated')
  })

  test('a stream event that holds the whole message is read', () => {
    const call = { id: 'c', type: 'function', function: { name: 'look', arguments: '{}' } }
    const whole = (message: object, finish: string | null = null): string =>
      JSON.stringify({ choices: [{ index: 0, message: { role: 'assistant', ...message }, finish_reason: finish }] })
    const stream = dialect().assemble({}, false)
    const last = whole({ content: 'hi', tool_calls: [call] }, 'tool_calls')
    // Those before the last have as much as there was; some send the last one twice.
    const deltas = [whole({ content: 'h' }), whole({ content: 'hi' }, ''), last, last].flatMap((data) => {
      const event = new EventDraft(data)
      stream.onEvent(data, event)
      return event.deltas
    })
    const expected = { role: 'assistant', content: 'hi', tool_calls: [call] }
    expect(stream.reply().message).toEqual(expected)
    expect(foldDeltas(deltas)).toEqual(expected)
    // Beside pieces it says the same again.
    const both = { delta: { content: 'hi' }, message: { role: 'assistant', content: 'hi' } }
    const end = { message: both.message, finish_reason: 'stop' }
    const events = [both, end].map((said) => JSON.stringify({ choices: [{ index: 0, ...said }] }))
    expect(assemble(events).reply().message.content).toBe('hi')
  })

  test('an empty finish reason is ignored', () => {
    const stream = assemble([chunk({ content: 'a' }, ''), chunk({ content: 'b' }, 'length'), chunk({}, '')])
    expect(stream.reply()).toMatchObject({ message: { content: 'ab' }, finishReason: 'length' })
  })

  test('tool calls without an index are read', () => {
    const stream = assemble([
      chunk({ tool_calls: [{ id: 'a', function: { name: 'one', arguments: '{' } }] }),
      chunk({ tool_calls: [{ function: { arguments: '}' } }] }),
      chunk({ tool_calls: [{ id: 'b', function: { name: 'two', arguments: '[]' } }] }, 'tool_calls'),
    ])
    expect(stream.reply().message.tool_calls).toEqual([
      { id: 'a', type: 'function', function: { name: 'one', arguments: '{}' } },
      { id: 'b', type: 'function', function: { name: 'two', arguments: '[]' } },
    ])
  })

  describe('tool calls with unusual indices', () => {
    const call = (id: string, name: string, given: string) => ({
      id,
      type: 'function',
      function: { name, arguments: given },
    })
    test.each([
      [
        'from 1',
        [
          { index: 1, ...call('a', 'one', '{') },
          { index: 1, function: { arguments: '}' } },
        ],
        [call('a', 'one', '{}')],
      ],
      [
        'with a gap, and far out',
        [
          { index: 0, ...call('a', 'one', '{}') },
          { index: 1e9, ...call('b', 'two', '{') },
          { index: 1e9, function: { arguments: '}' } },
        ],
        [call('a', 'one', '{}'), call('b', 'two', '{}')],
      ],
      [
        'all alike',
        [
          { index: 0, ...call('a', 'one', '{"x":1}') },
          { index: 0, ...call('b', 'one', '{"x":') },
          { index: 0, function: { arguments: '2}' } },
        ],
        [call('a', 'one', '{"x":1}'), call('b', 'one', '{"x":2}')],
      ],
      [
        'all alike, and without arguments',
        [
          { index: 0, ...call('a', 'one', '') },
          { index: 0, ...call('b', 'two', '') },
        ],
        [call('a', 'one', ''), call('b', 'two', '')],
      ],
      [
        'all alike, and without ids',
        [
          { index: 0, function: { name: 'one', arguments: '{"x":1}' } },
          { index: 0, function: { name: 'one', arguments: '{"x":2}' } },
        ],
        [call('call_0', 'one', '{"x":1}'), call('call_1', 'one', '{"x":2}')],
      ],
      [
        'not at all, and without ids',
        [
          { function: { name: 'one', arguments: '{}' } },
          { function: { name: 'two', arguments: { x: 2 } } },
          { function: { name: 'three', arguments: '' } },
        ],
        [call('call_0', 'one', '{}'), call('call_1', 'two', '{"x":2}'), call('call_2', 'three', '')],
      ],
      [
        'not at all, with an id in every piece',
        [call('a', 'one', '{'), call('a', '', '"x":1'), call('b', 'two', '{}'), call('a', '', '}')],
        [call('a', 'one', '{"x":1}'), call('b', 'two', '{}')],
      ],
    ])('%s', (_name, pieces, expected) => {
      const stream = dialect().assemble({}, false)
      const told = [...pieces.map((piece) => chunk({ tool_calls: [piece] })), chunk({}, 'tool_calls')].map((data) => {
        const event = new EventDraft(data)
        stream.onEvent(data, event)
        return event.deltas
      })
      expect(stream.reply().message.tool_calls).toEqual(expected)
      expect(foldDeltas(told.flat())).toEqual(stream.reply().message)
    })

    test('are ordered by index, whichever began first', () => {
      const pieces = [
        { index: 2, ...call('b', 'two', '{') },
        { index: 1, ...call('a', 'one', '{}') },
        { index: 2, function: { arguments: '}' } },
      ]
      const stream = assemble([...pieces.map((piece) => chunk({ tool_calls: [piece] })), chunk({}, 'tool_calls')])
      const expected = [call('a', 'one', '{}'), call('b', 'two', '{}')]
      expect(stream.reply().message.tool_calls).toEqual(expected)
      expect(stream.partial().message.tool_calls).toEqual(expected)
    })

    test('are not duplicated when a name or an id is repeated', () => {
      const repeated = [
        // Another id in each piece, as older versions of vLLM have it.
        { index: 0, ...call('a', 'one', '{"x"') },
        { index: 0, id: 'b', function: { name: null, arguments: ':1}' } },
        // The name in each piece.
        { index: 1, ...call('c', 'two', '{') },
        { index: 1, ...call('c', 'two', '}') },
        { index: 1, ...call('c', 'two', '') },
        { index: 1, function: { name: 'two', arguments: ' ' } },
        // Arguments that are no JSON yet, or never.
        { index: 2, ...call('e', 'three', '{"x":') },
        { index: 2, ...call('f', 'three', '{}}') },
        // Another id and the name in each piece, the last of which is empty: vLLM again, where the tool was chosen for it.
        { index: 3, ...call('g', 'four', '{"x"') },
        { index: 3, ...call('h', 'four', ':1}') },
        { index: 3, ...call('i', 'four', '') },
      ]
      const stream = assemble([...repeated.map((piece) => chunk({ tool_calls: [piece] })), chunk({}, 'tool_calls')])
      expect(stream.reply().message.tool_calls).toEqual([
        call('a', 'one', '{"x":1}'),
        call('c', 'two', '{} '),
        call('e', 'three', '{"x":{}}'),
        call('g', 'four', '{"x":1}'),
      ])
    })
  })

  test.each([
    [
      'an error event',
      JSON.stringify({ error: { message: 'overloaded', type: 'overloaded_error' } }),
      'model_overloaded',
    ],
    ['an event that is no JSON', '{"choices":', 'model_malformed'],
    ['an event that is not an object', '42', 'model_malformed'],
    [
      'more calls than there can be',
      chunk({ tool_calls: Array.from({ length: 1025 }, (_, index) => ({ index, function: { name: 'x' } })) }),
      'model_malformed',
    ],
  ])('%s', async (_name, event, code) => {
    expect(await codeOf(() => assemble([event]))).toBe(code)
  })
})
