import { describe, expect, test } from 'vitest'
import { MillraceError } from '../../errors/index.ts'
import type { BackendReply } from '../backend.ts'
import type { AssistantMessage, JsonObject, Message } from '../../schema/index.ts'
import { type DialectRequest, newReplyId, type ReplyHead } from '../server-side.ts'
import { responsesServer } from './write-stream.ts'

function read(fields: JsonObject): DialectRequest {
  return responsesServer.read({ model: 'm', input: 'Hi', ...fields })
}

function head(fields: JsonObject = {}): ReplyHead {
  return { id: newReplyId('responses'), model: 'm', createdAt: 1_700_000_000, request: read(fields) }
}

function replyOf(message: AssistantMessage, more: Partial<BackendReply> = {}): BackendReply {
  const usage = { calls: 1, input: 10, cachedInput: 4, output: 6, reasoning: 2 }
  return { message, finishReason: message.tool_calls ? 'tool_calls' : 'stop', usage, ...more }
}

function call(id: string, name = 'add', written = '{"a":1}'): NonNullable<AssistantMessage['tool_calls']>[number] {
  return { id, type: 'function', function: { name, arguments: written } }
}

const pixel = 'data:image/png;base64,AAAA'
const ownId = 'a'.repeat(30)
const otherId = 'b'.repeat(30)

describe('input becomes messages', () => {
  const cases: [title: string, input: JsonObject['input'], messages: Message[]][] = [
    ['a string', 'Hi', [{ role: 'user', content: 'Hi' }]],
    [
      'messages with and without a type',
      [
        { type: 'message', role: 'system', content: 'Be brief.' },
        { role: 'developer', content: 'Very.' },
        { type: null, role: 'user', content: 'Hi' },
      ],
      [
        { role: 'system', content: 'Be brief.' },
        { role: 'developer', content: 'Very.' },
        { role: 'user', content: 'Hi' },
      ],
    ],
    [
      'a text alone',
      [{ role: 'user', content: [{ type: 'input_text', text: 'Hi' }] }],
      [{ role: 'user', content: 'Hi' }],
    ],
    [
      'texts and images',
      [
        {
          role: 'user',
          content: [
            { type: 'input_text', text: 'Look' },
            { type: 'input_image', image_url: pixel, detail: 'low' },
            { type: 'input_image', image_url: pixel, detail: 'auto' },
          ],
        },
      ],
      [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'Look' },
            { type: 'image_url', image_url: { url: pixel, detail: 'low' } },
            { type: 'image_url', image_url: { url: pixel } },
          ],
        },
      ],
    ],
    [
      'a whole turn of a model',
      [
        { type: 'reasoning', id: 'rs_1', summary: [{ type: 'summary_text', text: 'Hm.' }] },
        { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'Let me see.' }] },
        { type: 'function_call', call_id: 'c1', name: 'add', arguments: '{"a":1}' },
        { type: 'function_call', call_id: 'c2', name: 'add', arguments: '{"a":1}' },
        { type: 'function_call_output', call_id: 'c1', output: '1' },
        { type: 'function_call_output', call_id: 'c2', output: [{ type: 'input_image', image_url: pixel }] },
      ],
      [
        { role: 'assistant', content: 'Let me see.', reasoning_content: 'Hm.', tool_calls: [call('c1'), call('c2')] },
        { role: 'tool', tool_call_id: 'c1', content: '1' },
        { role: 'tool', tool_call_id: 'c2', content: [{ type: 'image_url', image_url: { url: pixel } }] },
      ],
    ],
    [
      'a call alone',
      [{ type: 'function_call', call_id: 'c1', name: 'add', arguments: '{"a":1}' }],
      [{ role: 'assistant', content: null, tool_calls: [call('c1')] }],
    ],
    [
      'text after a call: the outputs are still due, so it is the same turn',
      [
        { role: 'assistant', content: 'One. ' },
        { type: 'function_call', call_id: 'c1', name: 'add', arguments: '{"a":1}' },
        { role: 'assistant', content: 'Wait.' },
        { type: 'function_call_output', call_id: 'c1', output: '1' },
      ],
      [
        { role: 'assistant', content: 'One. Wait.', tool_calls: [call('c1')] },
        { role: 'tool', tool_call_id: 'c1', content: '1' },
      ],
    ],
    [
      'two texts: two turns',
      [
        { role: 'assistant', content: 'One.' },
        { role: 'assistant', content: 'Two.' },
      ],
      [
        { role: 'assistant', content: 'One.' },
        { role: 'assistant', content: 'Two.' },
      ],
    ],
    [
      'items of one reply, by their ids, in whatever order',
      [
        { type: 'message', id: `msg_${ownId}`, role: 'assistant', content: 'One. ' },
        { type: 'reasoning', id: `rs_${ownId}`, summary: [{ type: 'summary_text', text: 'Hm. ' }] },
        { type: 'message', id: `msg_${ownId}_1`, role: 'assistant', content: 'Two.' },
        { type: 'reasoning', id: `rs_${otherId}`, summary: [{ type: 'summary_text', text: 'Next.' }] },
      ],
      [
        { role: 'assistant', content: 'One. Two.', reasoning_content: 'Hm. ' },
        { role: 'assistant', content: '', reasoning_content: 'Next.' },
      ],
    ],
    [
      'a refusal, and text in several parts',
      [
        {
          role: 'assistant',
          content: [
            { type: 'output_text', text: 'I ' },
            { type: 'output_text', text: 'think' },
            { type: 'refusal', refusal: 'No.' },
          ],
        },
      ],
      [{ role: 'assistant', content: 'I think', refusal: 'No.' }],
    ],
    [
      'reasoning that is shown itself, before its summary; paragraphs of a summary',
      [
        {
          type: 'reasoning',
          summary: [{ type: 'summary_text', text: 'short' }],
          content: [{ type: 'reasoning_text', text: 'long' }],
        },
        {
          type: 'reasoning',
          summary: [
            { type: 'summary_text', text: 'A' },
            { type: 'summary_text', text: 'B' },
          ],
        },
      ],
      [{ role: 'assistant', content: '', reasoning_content: 'longA\n\nB' }],
    ],
  ]
  test.each(cases)('%s', (_title, input, messages) => {
    const request = read({ input })
    expect(JSON.stringify(request.messages)).toBe(JSON.stringify(messages))
    expect(request.unsupported).toEqual([])
  })

  test('instructions become the first message', () => {
    expect(read({ instructions: 'Be brief.' }).messages).toEqual([
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'Hi' },
    ])
  })

  test('a request that continues a reply needs no input', () => {
    const request = responsesServer.read({ model: 'm', previous_response_id: 'resp_1', input: [] })
    expect(request).toMatchObject({ messages: [], previousReplyId: 'resp_1' })
  })
})

describe('further fields of a request', () => {
  const cases: [title: string, fields: JsonObject, expected: Partial<DialectRequest>][] = [
    ['nothing', {}, { tools: [], sampling: {}, stream: false, includeUsage: true, wantsLogprobs: false }],
    [
      'sampling',
      { temperature: 0.5, top_p: 0.9, max_output_tokens: 7, reasoning: { effort: 'low', summary: 'auto' } },
      { sampling: { temperature: 0.5, topP: 0.9, maxTokens: 7, reasoningEffort: 'low' } },
    ],
    [
      'nulls',
      { temperature: null, tools: null, text: null, reasoning: null, include: null },
      { sampling: {}, tools: [] },
    ],
    [
      'what nobody knows goes along',
      { metadata: { a: 'b' }, user: 'u', text: { verbosity: 'low' }, top_k: 5 },
      { sampling: { extra: { metadata: { a: 'b' }, user: 'u', top_k: 5, verbosity: 'low' } } },
    ],
    ['a stream', { stream: true, stream_options: { include_obfuscation: false }, store: false }, { stream: true }],
    [
      'functions',
      {
        tools: [{ type: 'function', name: 'add', description: 'Adds.', parameters: { type: 'object' }, strict: true }],
      },
      {
        tools: [
          {
            type: 'function',
            function: { name: 'add', description: 'Adds.', parameters: { type: 'object' }, strict: true },
          },
        ],
      },
    ],
    [
      'a function without parameters',
      { tools: [{ type: 'function', name: 'now', parameters: null, strict: null }] },
      { tools: [{ type: 'function', function: { name: 'now', parameters: { type: 'object', properties: {} } } }] },
    ],
    [
      'a choice',
      { tool_choice: 'required', parallel_tool_calls: false },
      { toolChoice: 'required', parallelToolCalls: false },
    ],
    ['a named choice', { tool_choice: { type: 'function', name: 'add' } }, { toolChoice: { name: 'add' } }],
    ['plain text', { text: { format: { type: 'text' } } }, {}],
    ['a JSON object', { text: { format: { type: 'json_object' } } }, { responseFormat: { kind: 'json_object' } }],
    [
      'a schema',
      {
        text: {
          format: { type: 'json_schema', name: 'n', schema: { type: 'object' }, strict: true, description: 'd' },
        },
      },
      {
        responseFormat: { kind: 'json_schema', name: 'n', description: 'd', schema: { type: 'object' }, strict: true },
      },
    ],
    ['encrypted reasoning', { include: ['reasoning.encrypted_content'] }, {}],
  ]
  test.each(cases)('%s', (_title, fields, expected) => {
    const request = read(fields)
    expect(request).toMatchObject(expected)
    expect(request.sampling).toEqual(expected.sampling ?? request.sampling)
    expect(request.responseFormat).toEqual(expected.responseFormat)
    expect(request.unsupported).toEqual([])
  })
})

describe('fields that only this API supports are listed as unsupported', () => {
  const cases: [fields: JsonObject, name: string][] = [
    [{ tools: [{ type: 'web_search' }] }, 'tools[0].type web_search'],
    [{ tools: [{ type: 'function', name: 'f', defer_loading: true }] }, 'tools[0].defer_loading'],
    [{ tool_choice: { type: 'allowed_tools', tools: [] } }, 'tool_choice.type allowed_tools'],
    [{ background: true, stream: true }, 'background'],
    [{ conversation: 'conv_1' }, 'conversation'],
    [{ prompt: { id: 'pmpt_1' } }, 'prompt'],
    [{ max_tool_calls: 3 }, 'max_tool_calls'],
    [{ top_logprobs: 2 }, 'top_logprobs'],
    [{ truncation: 'auto' }, 'truncation auto'],
    [{ include: ['file_search_call.results'] }, 'include file_search_call.results'],
    [{ include: ['message.output_text.logprobs'] }, 'include message.output_text.logprobs'],
    [{ text: { format: { type: 'grammar' } } }, 'text.format.type grammar'],
    [{ reasoning: { mode: 'deep' } }, 'reasoning.mode'],
    [{ messages: [] }, 'messages'],
    [{ input: [{ type: 'item_reference', id: 'msg_1' }] }, 'input[0].type item_reference'],
    [{ input: [{ type: 'web_search_call', id: 'ws_1', status: 'completed' }] }, 'input[0].type web_search_call'],
    [{ input: [{ type: 'reasoning', summary: [], encrypted_content: 'gAAA' }] }, 'input[0].encrypted_content'],
    [
      { input: [{ role: 'user', content: [{ type: 'input_image', file_id: 'file_1' }] }] },
      'input[0].content[0].file_id',
    ],
    [
      { input: [{ role: 'user', content: [{ type: 'input_image', image_url: pixel, detail: 'original' }] }] },
      'input[0].content[0].detail original',
    ],
    [
      { input: [{ role: 'user', content: [{ type: 'input_file', file_url: 'https://x/y.pdf' }] }] },
      'input[0].content[0].type input_file',
    ],
    [
      { input: [{ type: 'function_call_output', call_id: 'c', output: [{ type: 'input_file', file_id: 'f' }] }] },
      'input[0].output[0].type input_file',
    ],
  ]
  test.each(cases)('%j', (fields, name) => {
    expect(read(fields).unsupported).toEqual([name])
  })

  test('unsupported content is kept unchanged, so that two different inputs differ', () => {
    const file = { type: 'input_file', file_id: 'file_1' }
    const output = { type: 'computer_call_output', call_id: 'c1', output: { type: 'computer_screenshot' } }
    const tools = { type: 'additional_tools', tools: [] }
    const input = [tools, { role: 'user', content: [{ type: 'input_text', text: 'Read' }, file] }, output]
    expect(read({ input }).messages).toEqual([
      { role: 'user', content: [{ type: 'other', api: 'responses', value: tools }] },
      {
        role: 'user',
        content: [
          { type: 'text', text: 'Read' },
          { type: 'other', api: 'responses', value: file },
        ],
      },
      { role: 'tool', tool_call_id: 'c1', content: [{ type: 'other', api: 'responses', value: output }] },
    ])
  })

  test('calls of hosted and custom tools are part of the turn of the model', () => {
    const search = { type: 'web_search_call', id: 'ws_1' }
    const patch = { type: 'custom_tool_call', call_id: 'c1', name: 'apply_patch', input: '*** Begin Patch' }
    const others = [search, patch].map((value) => ({ type: 'other', api: 'responses', value }))
    const input = [search, { role: 'assistant', content: 'Found.' }, patch]
    expect(read({ input }).messages).toEqual([{ role: 'assistant', content: 'Found.', others }])
    // Its output is due, so that what follows cannot be another turn.
    const thought = { type: 'reasoning', summary: [{ type: 'summary_text', text: 'hm' }] }
    expect(read({ input: [...input, thought] }).messages).toHaveLength(1)
  })

  test('the number of unsupported fields listed is limited', () => {
    const input = Array.from({ length: 1000 }, () => ({ type: 'web_search_call' }))
    expect(read({ input }).unsupported.length).toBeLessThan(100)
  })
})

describe('an invalid request is refused with the path of the field', () => {
  const cases: [fields: JsonObject, param: string][] = [
    [{ model: 3 }, 'model'],
    [{ input: [] }, 'input'],
    [{ input: 5 }, 'input'],
    [{ input: null }, 'input'],
    [{ input: ['Hi'] }, 'input[0]'],
    [{ input: [{ type: 7 }] }, 'input[0].type'],
    [{ input: [{ role: 'tool', content: 'x' }] }, 'input[0].role'],
    [{ input: [{ role: 'user' }] }, 'input[0].content'],
    [{ input: [{ role: 'user', content: ['x'] }] }, 'input[0].content[0]'],
    [{ input: [{ role: 'user', content: [{ type: 'input_text' }] }] }, 'input[0].content[0].text'],
    [{ input: [{ role: 'user', content: [{ type: 'input_image' }] }] }, 'input[0].content[0].image_url'],
    [{ input: [{ role: 'assistant', content: null }] }, 'input[0].content'],
    [{ input: [{ role: 'assistant', content: [{ type: 'refusal' }] }] }, 'input[0].content[0].refusal'],
    [{ input: [{ type: 'function_call', name: 'f', arguments: '{}' }] }, 'input[0].call_id'],
    [{ input: [{ type: 'function_call', call_id: 'c', name: 'f', arguments: {} }] }, 'input[0].arguments'],
    [{ input: [{ type: 'function_call_output', call_id: 'c' }] }, 'input[0].output'],
    [{ input: [{ type: 'reasoning', summary: 'x' }] }, 'input[0].summary'],
    [{ input: [{ type: 'reasoning', summary: [{}] }] }, 'input[0].summary[0].text'],
    [{ instructions: [] }, 'instructions'],
    [{ tools: {} }, 'tools'],
    [{ tools: [{}] }, 'tools[0]'],
    [{ tools: [{ type: 'function' }] }, 'tools[0].name'],
    [{ tool_choice: 'some' }, 'tool_choice'],
    [{ tool_choice: { type: 'function' } }, 'tool_choice.name'],
    [{ text: 'json' }, 'text'],
    [{ text: { format: { type: 'json_schema' } } }, 'text.format.name'],
    [{ temperature: 'hot' }, 'temperature'],
    [{ top_p: 2 }, 'top_p'],
    [{ max_output_tokens: 0 }, 'max_output_tokens'],
    [{ stream: 'yes' }, 'stream'],
    [{ reasoning: 'high' }, 'reasoning'],
    [{ reasoning: { effort: 3 } }, 'reasoning.effort'],
    [{ include: 'x' }, 'include'],
    [{ include: [1] }, 'include[0]'],
    [{ previous_response_id: 1 }, 'previous_response_id'],
    [{ background: true }, 'background'],
    [{ background: true, stream: false }, 'background'],
  ]
  test.each(cases)('%j', (fields, param) => {
    expect(() => read(fields)).toThrow(
      expect.objectContaining({ code: 'model_rejected', data: { status: 400, param } }) as MillraceError,
    )
  })
})

describe('a whole reply', () => {
  test('repeats the fields of the request', () => {
    const tools = [{ type: 'function', name: 'add', parameters: { type: 'object' }, strict: true }]
    const asked = {
      instructions: 'Be brief.',
      tools,
      tool_choice: 'required',
      temperature: 0.5,
      top_p: 0.9,
      parallel_tool_calls: false,
      text: { verbosity: 'low' },
      reasoning: { effort: 'low' },
      metadata: { a: 'b' },
      max_output_tokens: 7,
      previous_response_id: 'resp_0',
      store: false,
      truncation: 'disabled',
    }
    const started = head(asked)
    expect(responsesServer.whole(started, replyOf({ role: 'assistant', content: 'Hi' }))).toMatchObject({
      ...asked,
      text: { format: { type: 'text' }, verbosity: 'low' },
      reasoning: { effort: 'low', summary: null },
      id: started.id,
      object: 'response',
      created_at: 1_700_000_000,
      status: 'completed',
      model: 'm',
      error: null,
      incomplete_details: null,
      usage: {
        input_tokens: 10,
        input_tokens_details: { cached_tokens: 4 },
        output_tokens: 6,
        output_tokens_details: { reasoning_tokens: 2 },
        total_tokens: 16,
      },
    })
  })

  test('has its items in order, with ids derived from its own', () => {
    const started = head()
    const own = started.id.slice('resp_'.length)
    const message: AssistantMessage = {
      role: 'assistant',
      content: 'Text',
      reasoning_content: 'Hm.',
      refusal: 'No.',
      tool_calls: [call('c1'), call('c2')],
    }
    expect(responsesServer.whole(started, replyOf(message))['output']).toEqual([
      { id: `rs_${own}`, type: 'reasoning', summary: [{ type: 'summary_text', text: 'Hm.' }] },
      {
        id: `msg_${own}`,
        type: 'message',
        status: 'completed',
        role: 'assistant',
        content: [
          { type: 'output_text', text: 'Text', annotations: [], logprobs: [] },
          { type: 'refusal', refusal: 'No.' },
        ],
      },
      {
        id: `fc_${own}_0`,
        type: 'function_call',
        status: 'completed',
        call_id: 'c1',
        name: 'add',
        arguments: '{"a":1}',
      },
      {
        id: `fc_${own}_1`,
        type: 'function_call',
        status: 'completed',
        call_id: 'c2',
        name: 'add',
        arguments: '{"a":1}',
      },
    ])
  })

  test.each([
    ['length', 'max_output_tokens'],
    ['content_filter', 'content_filter'],
  ] as const)('that was cut (%s) is incomplete, and so is its last item', (finishReason, reason) => {
    const tool_calls = [call('c1'), call('c2', 'add', '{"a')]
    const message: AssistantMessage = { role: 'assistant', content: 'Te', tool_calls }
    expect(responsesServer.whole(head(), replyOf(message, { finishReason }))).toMatchObject({
      status: 'incomplete',
      incomplete_details: { reason },
      output: [{ status: 'completed' }, { status: 'completed' }, { status: 'incomplete' }],
    })
  })

  test('without text is read back as an empty message', () => {
    const message: AssistantMessage = { role: 'assistant', content: '' }
    const { output } = responsesServer.whole(head(), replyOf(message))
    expect(read({ input: output as JsonObject[] }).messages).toEqual([message])
  })
})

describe('reasoning that a client sends back', () => {
  const message: AssistantMessage = { role: 'assistant', content: 'Hi', reasoning_content: 'Hm… 🤔' }

  test('is read from the encoded field alone', () => {
    const { output } = responsesServer.whole(head({ include: ['reasoning.encrypted_content'] }), replyOf(message))
    const [reasoning, text] = output as [JsonObject, JsonObject]
    const input = [{ type: 'reasoning', summary: [], encrypted_content: reasoning['encrypted_content'] }, text]
    expect(read({ input })).toMatchObject({ messages: [message], unsupported: [] })
  })

  test('is not encoded unless requested', () => {
    const { output } = responsesServer.whole(head(), replyOf(message))
    expect(output).not.toContainEqual(expect.objectContaining({ encrypted_content: expect.anything() }))
  })
})

describe('item references', () => {
  const message: AssistantMessage = {
    role: 'assistant',
    content: 'Text',
    reasoning_content: 'Hm.',
    tool_calls: [call('c1'), call('c2')],
  }
  const search = { type: 'web_search_call', id: 'ws_theirs', status: 'completed' }
  const replies = new Map([[`resp_${ownId}`, message]])
  const refer = (...ids: string[]) => ids.map((id) => ({ type: 'item_reference', id }))
  const foreign = new Map([['fc_theirs', { replyId: `resp_${ownId}`, kind: 'fc', number: 1 } as const]])
  const memory = {
    reply: (id: string) => replies.get(id),
    origin: (id: string) => foreign.get(id),
    hasOutputOf: () => false,
    other: (id: string) => (id === 'ws_theirs' ? search : undefined),
  }
  const readKept = (input: JsonObject[]) => responsesServer.read({ model: 'm', input }, { replies: memory })

  test('are read like the items themselves', () => {
    const input = refer(`rs_${ownId}`, `msg_${ownId}`, `fc_${ownId}_0`, `fc_${ownId}_1`)
    expect(JSON.stringify(readKept(input).messages)).toBe(JSON.stringify([message]))
    expect(readKept(input).unsupported).toEqual([])
  })

  test.each([undefined, null])('with the type %s are accepted', (type) => {
    const ids = [`rs_${ownId}`, `msg_${ownId}`, `fc_${ownId}_0`, `fc_${ownId}_1`]
    expect(readKept(ids.map((id) => ({ id, type }))).messages).toEqual([message])
    const { providerContent } = readKept([{ id: `msg_${otherId}`, type }])
    expect(providerContent).toEqual(['input[0].type item_reference'])
  })

  test('with ids of another server are resolved', () => {
    const input = refer(`rs_${ownId}`, `msg_${ownId}`, `fc_${ownId}_0`, 'fc_theirs')
    expect(readKept(input).messages).toEqual([message])
  })

  test('are accepted beside calls sent without an id', () => {
    const sent = [1, 2].map((n) => ({ type: 'function_call', call_id: `c${n}`, name: 'add', arguments: '{"a":1}' }))
    expect(readKept([...refer(`rs_${ownId}`, `msg_${ownId}`, `msg_${ownId}_1`), ...sent]).messages).toEqual([message])
  })

  test('are listed as unsupported if the item is unknown', () => {
    const request = readKept(refer(`msg_${otherId}`))
    expect(request).toMatchObject({
      unsupported: request.providerContent,
      providerContent: ['input[0].type item_reference'],
    })
  })

  test('to items that only this API supports are listed as unsupported', () => {
    const { messages, unsupported, providerContent } = readKept(refer(`rs_${ownId}`, 'ws_theirs', `msg_${ownId}`))
    const others = [{ type: 'other', api: 'responses', value: search }]
    expect(messages).toEqual([{ role: 'assistant', content: 'Text', reasoning_content: 'Hm.', others }])
    expect(unsupported).toEqual(['input[1].id web_search_call'])
    expect(providerContent).toBeUndefined()
  })
})

describe('errors', () => {
  const error = new MillraceError('model_rejected', 'input must be a string', { data: { status: 400, param: 'input' } })

  test('have the OpenAI format', () => {
    expect(responsesServer.error(error)).toEqual({
      status: 400,
      headers: {},
      body: {
        error: {
          message: 'input must be a string',
          type: 'invalid_request_error',
          param: 'input',
          code: 'invalid_value',
        },
      },
    })
  })

  test('in a stream are one event that fits both formats', () => {
    const { name, data } = responsesServer.streamError(error)
    expect(name).toBe('error')
    expect(data).toMatchObject({ type: 'error', message: 'input must be a string', error: { param: 'input' } })
    expect(data).toMatchObject({ code: expect.any(String) as string, sequence_number: expect.any(Number) as number })
  })
})
