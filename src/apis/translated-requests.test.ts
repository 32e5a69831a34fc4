import { describe, expect, test } from 'vitest'
import type { BackendReply } from './backend.ts'
import { seededRandom } from '../kit/index.ts'
import type { AssistantMessage, Json, JsonObject } from '../schema/index.ts'
import { chatServer } from './chat/write-reply.ts'
import { messagesServer } from './messages/write-reply.ts'
import { type DialectRequest, replyDeltas } from './server-side.ts'
import { responsesServer } from './responses/write-stream.ts'
import { freeformArguments, freeformInput } from './tool-input.ts'

const messages = (fields: JsonObject): DialectRequest =>
  messagesServer.read(
    { model: 'm', max_tokens: 10, messages: [{ role: 'user', content: 'hello' }], ...fields },
    { backendApi: 'chat' },
  )
const responses = (fields: JsonObject): DialectRequest =>
  responsesServer.read({ model: 'm', input: 'hello', ...fields }, { backendApi: 'chat' })

const schema = { type: 'object', properties: { path: { type: 'string' } } }
const read = { type: 'function', name: 'read', description: 'Reads a file.', parameters: schema, strict: false }
const patch = {
  type: 'custom',
  name: 'patch',
  description: 'Changes files.',
  format: { type: 'grammar', syntax: 'lark', definition: 'start: "x"' },
}
const files = { type: 'namespace', name: 'files', description: 'Files.', tools: [read, patch] }

describe('Messages for a backend of another API', () => {
  test('leaves out Anthropic settings, thinking edits and cache marks, and lists each once', () => {
    const cache_control = { type: 'ephemeral' }
    const request = messages({
      system: [
        { type: 'text', text: 'x-anthropic-billing-header: cc_version=1; cc_entrypoint=cli;' },
        { type: 'text', text: 'Be brief.', cache_control },
        { type: 'text', text: 'Be kind.', cache_control },
      ],
      context_management: { edits: [{ type: 'clear_thinking_20251015', keep: 'all' }] },
      metadata: { user_id: 'u' },
      speed: 'fast',
      thread: { type: 'create' },
      tools: [{ name: 'f', input_schema: {}, defer_loading: true }],
    })
    expect(request).toMatchObject({
      messages: [
        { role: 'system', content: [{ text: 'Be brief.' }, { text: 'Be kind.' }] },
        { role: 'user', content: 'hello' },
      ],
      tools: [{ function: { name: 'f' } }],
      unsupported: [],
      dropped: [
        'system[] x-anthropic-billing-header',
        'cache_control',
        'tools[].defer_loading',
        'thread',
        'speed',
        'context_management.edits[].type clear_thinking_20251015',
      ],
    })
    expect(request.sampling.extra).toEqual({ user: 'u' })
  })

  test.for<readonly [JsonObject, string]>([
    [{ context_management: { edits: [{ type: 'clear_tool_uses_20250919' }] } }, 'clear_tool_uses_20250919'],
    [{ context_management: { rules: [1] } }, 'context_management.rules'],
    [{ compaction: { trigger: 5 } }, 'compaction'],
    [{ tools: [{ type: 'bash_20250124', name: 'bash' }] }, 'tools[0].type bash_20250124'],
  ])('refuses a field that the model would need: %j', ([fields, name]) => {
    expect(messages(fields).unsupported).toEqual([expect.stringContaining(name)])
  })

  test('lists the tools that a result has loaded', () => {
    const content = [{ type: 'tool_reference', tool_name: 'WebFetch' }]
    const turns = {
      messages: [
        { role: 'user', content: 'hello' },
        { role: 'assistant', content: [{ type: 'tool_use', id: 'c', name: 'ToolSearch', input: {} }] },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'c', content }] },
      ],
    }
    const result = { role: 'tool', tool_call_id: 'c', content: 'Tool loaded: WebFetch' }
    expect(messages(turns)).toMatchObject({ messages: [{}, {}, result], unsupported: [] })
    const own = messagesServer.read({ model: 'm', max_tokens: 10, ...turns })
    expect(own.messages.at(-1)?.content).toMatchObject([{ type: 'other', value: { tool_name: 'WebFetch' } }])
  })

  test('lists each kind of omitted field once, however many tools have it', () => {
    const tools = Array.from({ length: 40 }, (_, index) => ({
      ...(index % 2 === 0
        ? { type: 'web_search_20250305' }
        : { defer_loading: true, input_schema: { type: 'object' } }),
      name: `t${index}`,
    }))
    const search = { type: 'web_fetch_20250910', name: 'web_fetch' }
    const request = messages({ tools: [...tools, search], speed: 'fast', user_profile_id: 'u' })
    expect(request.dropped).toEqual(['tools[].defer_loading', 'speed', 'user_profile_id'])
    expect(request.hosted).toEqual(['tools[].type web_search_20250305', 'tools[].type web_fetch_20250910'])
  })

  test('lists the hosted tools of Anthropic', () => {
    const request = messages({
      mcp_servers: [{ name: 'x' }],
      tools: [
        { type: 'web_search_20250305', name: 'web_search' },
        { type: 'mcp_toolset', mcp_server_name: 'x' },
      ],
    })
    expect(request).toMatchObject({ tools: [], unsupported: [] })
    expect(request.hosted).toEqual(['tools[].type web_search_20250305', 'tools[].type mcp_toolset', 'mcp_servers'])
  })

  const search = { type: 'web_search_20250305', name: 'web_search' }
  const custom = { name: 'read', input_schema: { type: 'object' } }
  test.for<readonly [JsonObject, readonly JsonObject[], boolean]>([
    [{ type: 'tool', name: 'web_search' }, [search], true],
    [{ type: 'tool', name: 'web_search' }, [search, custom], true],
    [{ type: 'tool', name: 'read' }, [search, custom], false],
    [{ type: 'any' }, [search], true],
    [{ type: 'any' }, [search, custom], false],
    [{ type: 'auto' }, [search], false],
    [{ type: 'none' }, [search], false],
  ])('the Messages tool choice %j among %j is refused: %s', ([tool_choice, tools, isRefused]) => {
    const refused = isRefused ? [expect.stringContaining('tool_choice')] : []
    expect(messages({ tool_choice, tools }).unsupported).toEqual(refused)
  })

  test('for its own API no field is left out', () => {
    const body = { model: 'm', max_tokens: 10, messages: [{ role: 'user', content: 'hello' }] }
    const request = messagesServer.read({
      ...body,
      speed: 'fast',
      system: [{ type: 'text', text: 'x-anthropic-billing-header: x' }],
    })
    expect(request).not.toHaveProperty('dropped')
    expect(request.messages).toHaveLength(2)
  })
})

describe('Chat for a backend of another API', () => {
  test('leaves out prediction and store, and lists a web search as a hosted tool', () => {
    const body = { model: 'm', messages: [{ role: 'user', content: 'hello' }] }
    const fields = { prediction: { type: 'content', content: 'x' }, store: true, web_search_options: {} }
    const request = chatServer.read({ ...body, ...fields }, { backendApi: 'messages' })
    expect(request).toMatchObject({
      unsupported: [],
      dropped: ['prediction', 'store'],
      hosted: ['web_search_options'],
    })
  })
})

describe('Responses for a backend of another API', () => {
  const search = { type: 'web_search' }
  test.for<readonly [JsonObject | string, readonly JsonObject[], boolean]>([
    [{ type: 'web_search' }, [search, read], true],
    [{ type: 'function', name: 'web_search' }, [search, read], true],
    [{ type: 'function', name: 'read' }, [search, read], false],
    ['required', [search], true],
    ['required', [search, read], false],
    ['auto', [search], false],
  ])('the Responses tool choice %j among %j is refused: %s', ([tool_choice, tools, isRefused]) => {
    const refused = isRefused ? [expect.stringContaining('tool_choice')] : []
    expect(responses({ tool_choice, tools }).unsupported).toEqual(refused)
  })

  test('leaves out labels and fields that only affect OpenAI tools', () => {
    const request = responses({
      client_metadata: { session_id: 's' },
      reasoning: { effort: 'low', context: 'all_turns' },
      include: ['reasoning.encrypted_content', 'web_search_call.action.sources'],
      max_tool_calls: 5,
      truncation: 'auto',
      prompt_cache_key: 'k',
      tools: [
        { type: 'web_search', external_web_access: true },
        { ...read, output_schema: schema },
      ],
      input: [
        { role: 'user', content: 'hello' },
        { type: 'configuration_update', reasoning: { effort: 'low' } },
      ],
    })
    expect(request).toMatchObject({
      messages: [{ role: 'user', content: 'hello' }],
      unsupported: [],
      hosted: ['tools[].type web_search'],
      sampling: { reasoningEffort: 'low', extra: { prompt_cache_key: 'k' } },
    })
    expect(request.dropped?.toSorted()).toEqual([
      'client_metadata',
      'include web_search_call.action.sources',
      'input[].type configuration_update',
      'max_tool_calls',
      'reasoning.context',
      'tools[].output_schema',
      'truncation auto',
    ])
  })

  test.for<readonly [JsonObject, string]>([
    [{ tools: [{ type: 'local_shell' }] }, 'tools[0].type local_shell'],
    [{ include: ['message.output_text.logprobs'] }, 'include message.output_text.logprobs'],
    [{ context_management: [{ type: 'compaction' }] }, 'context_management'],
    [{ tools: [{ ...read, allowed_callers: ['programmatic'] }] }, 'tools[0].allowed_callers'],
    [{ tools: [{ type: 'namespace', name: 'a', tools: [files] }] }, 'tools[0].tools[0].type namespace'],
    [{ input: [{ type: 'configuration_update', tools: [] }] }, 'input[0].type configuration_update'],
  ])('refuses a field that the model would need: %j', ([fields, name]) => {
    expect(responses(fields).unsupported).toEqual([name])
  })

  test('turns namespaced and freeform tools into functions, also those in the input', () => {
    const { tools, messages: said } = responses({
      tools: [read, files],
      input: [
        { type: 'additional_tools', role: 'developer', tools: [{ ...files, name: 'mcp__disk__' }] },
        { role: 'user', content: 'hello' },
      ],
    })
    const freeform = {
      description: 'Files.\n\nChanges files.\n\nThe text in `input` must match this lark grammar:\nstart: "x"',
      parameters: { type: 'object', required: ['input'], additionalProperties: false },
    }
    expect(tools).toMatchObject([
      { function: { name: 'read', description: 'Reads a file.', parameters: schema, strict: false } },
      { function: { name: 'files__read', parameters: schema } },
      { function: { name: 'files__patch', ...freeform } },
      { function: { name: 'mcp__disk__read' } },
      { function: { name: 'mcp__disk__patch' } },
    ])
    expect(said).toEqual([{ role: 'user', content: 'hello' }])
  })

  test('puts the description of a namespace before those of its tools', () => {
    const { tools, dropped } = responses({
      tools: [
        {
          ...files,
          description: 'Works on files.',
          tools: [read, { type: 'function', name: 'list', parameters: schema }],
        },
        { ...files, name: 'disk', description: '', tools: [read] },
        { type: 'namespace', name: 'bare', tools: [{ type: 'function', name: 'list', parameters: schema }] },
      ],
    })
    expect(tools.map((tool) => tool.function.description)).toEqual([
      'Works on files.\n\nReads a file.',
      'Works on files.',
      'Reads a file.',
      undefined,
    ])
    expect(dropped).toBeUndefined()
  })

  test('gives tools of different namespaces different names, and lists a repeated tool once', () => {
    const long = 'n'.repeat(70)
    const { tools } = responses({
      tools: [
        { ...read, name: 'a__b__c' },
        { type: 'namespace', name: 'a__b', tools: [{ ...read, name: 'c' }] },
        { type: 'namespace', name: 'a', tools: [{ ...read, name: 'b__c' }] },
        { type: 'namespace', name: long, tools: [read] },
        { type: 'namespace', name: `m${long}`, tools: [read] },
        { type: 'namespace', name: 'a__b', tools: [{ ...read, name: 'c', description: 'Newer.' }] },
      ],
    })
    const names = tools.map((tool) => tool.function.name)
    expect(names.slice(0, 3)).toEqual(['a__b__c', 'a__b__c_2', 'a__b__c_3'])
    expect(new Set(names).size).toBe(5)
    expect(Math.max(...names.map((name) => name.length))).toBe(64)
    expect(tools[1]?.function.description).toBe('Newer.')
  })

  test.for([
    [{ type: 'function', name: 'read' }, 'read'],
    [{ type: 'custom', name: 'patch', namespace: 'files' }, 'files__patch'],
  ] as const)('the tool choice %j becomes the function %s', ([tool_choice, name]) => {
    expect(responses({ tools: [read, files], tool_choice }).toolChoice).toEqual({ name })
  })
})

/** The calls of a model, as it made them, and as a client of Responses sees them. */
const calls: readonly (readonly [name: string, written: string, item: JsonObject])[] = [
  ['read', '{"path": "a"}', { type: 'function_call', name: 'read', arguments: '{"path": "a"}' }],
  ['files__read', '{}', { type: 'function_call', name: 'read', namespace: 'files', arguments: '{}' }],
  ['files__patch', '{"input":"x\\n"}', { type: 'custom_tool_call', name: 'patch', namespace: 'files', input: 'x\n' }],
  ['unheard_of', '{}', { type: 'function_call', name: 'unheard_of', arguments: '{}' }],
]

describe('a reply to a translated request', () => {
  const request = responses({ tools: [read, files], stream: true })
  const head = { id: `resp_${'0'.repeat(30)}`, model: 'm', createdAt: 0, request }
  const message: AssistantMessage = {
    role: 'assistant',
    content: null,
    tool_calls: calls.map(([name, written], index) => ({
      id: `call_${index}`,
      type: 'function',
      function: { name, arguments: written },
    })),
  }
  const usage = { calls: 1, input: 1, cachedInput: 0, output: 1, reasoning: 0 }
  const reply: BackendReply = { message, finishReason: 'tool_calls', usage }
  const { output } = responsesServer.whole(head, reply) as { output: JsonObject[] }

  test('has calls with the names and formats that the client knows', () => {
    expect(output).toMatchObject(calls.map(([, , item]) => item))
    expect(output.map((item) => item['call_id'])).toEqual(['call_0', 'call_1', 'call_2', 'call_3'])
  })

  test('is read back as the sampled message', () => {
    const input = [
      ...output,
      { type: 'custom_tool_call_output', call_id: 'call_2', output: [{ type: 'input_text', text: 'ok' }] },
    ]
    expect(responses({ tools: [read, files], input }).messages).toEqual([
      message,
      { role: 'tool', tool_call_id: 'call_2', content: 'ok' },
    ])
  })

  test('is streamed with the same items as a whole reply', () => {
    const writer = responsesServer.stream(head)
    const events = [
      ...writer.start(),
      ...replyDeltas(message).flatMap((delta) => writer.delta(delta)),
      ...writer.end(reply),
    ].map(({ data }) => data as Record<string, Json>)
    const ended = events.filter(({ type }) => type === 'response.output_item.done').map(({ item }) => item)
    expect(ended).toEqual(output)
    expect(events.at(-1)).toMatchObject({ type: 'response.completed', response: { output } })
    const freeform = events.filter(({ output_index: index }) => index === 2)
    expect(freeform).toMatchObject([
      { type: 'response.output_item.added', item: { type: 'custom_tool_call', name: 'patch', input: '' } },
      { type: 'response.custom_tool_call_input.delta', delta: 'x\n' },
      { type: 'response.custom_tool_call_input.done', input: 'x\n' },
      { type: 'response.output_item.done' },
    ])
  })
})

describe('the input of a freeform tool', () => {
  test.for([
    '{"input":"ls"}',
    '{"input":""}',
    '{"input":"{\\"INVALID_JSON\\":\\"x\\"}"}',
    '{"input":1}',
    '{"input":"a","more":"b"}',
    '{"inp',
    '',
    'null',
    '{"INVALID_JSON":"x"}',
  ])('is read back as the model wrote it: %s', (written) => {
    expect(freeformArguments(freeformInput(written))).toBe(written)
  })

  test('is read back as the client wrote it', () => {
    const random = seededRandom(27)
    const pieces = ['{', '}', '"', '\\', 'input', 'INVALID_JSON', ':', ',', ' ', 'é', '\n', '{"INVALID_JSON":"']
    for (let round = 0; round < 500; round += 1) {
      const text = Array.from({ length: 8 }, () => pieces[Math.floor(random() * pieces.length)]).join('')
      const written = JSON.stringify({ input: text })
      expect(freeformArguments(freeformInput(written))).toBe(written)
      expect(freeformArguments(freeformInput(text))).toBe(text)
    }
  })
})
