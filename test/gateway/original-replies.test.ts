import { MessageStream } from '@anthropic-ai/sdk/lib/MessageStream'
import { expect, test } from 'vitest'
import { admin, OpenGateway } from '../support/gateway/open-gateway.ts'
import { chatReply, ScriptedServer, sendJson } from '../support/inference/scripted-server.ts'
import { messagesEvents, messagesReply } from '../support/inference/messages-server.ts'
import { modelCalls } from '../../src/inference/index.ts'
import { isJsonObject, type ApiName, type Message } from '../../src/schema/index.ts'

/** What a backend writes that a message of ours has no field for, and how a client sends it back. */
interface Case {
  readonly api: ApiName
  readonly name: string
  readonly document: object
  /** The same as a stream. */
  readonly events: readonly object[]
  /** What of it a client sees, of a whole reply. */
  readonly said: (document: Record<string, unknown>) => unknown
  /** A request: what was said at first, and then. */
  readonly ask: (later: readonly object[]) => object
  /** What is sent back of the reply, and what comes after it. */
  readonly back: readonly object[]
  /** The same with a word changed. */
  readonly rewritten: readonly object[]
  readonly recorded: object
}

const patch = { type: 'custom_tool_call', id: 'ctc_1', status: 'completed', call_id: 'c1', name: 'patch', input: 'a' }
const search = {
  type: 'web_search_call',
  id: 'ws_1',
  status: 'completed',
  action: { type: 'search', query: 'mills', sources: null },
}
const cited = {
  type: 'message',
  id: 'msg_1',
  status: 'completed',
  role: 'assistant',
  content: [
    {
      type: 'output_text',
      text: 'Found.',
      annotations: [{ type: 'url_citation', url: 'https://a.example', title: 'A', start_index: 0, end_index: 5 }],
    },
  ],
}
const thought = { type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: 'gAAA' }
const response = {
  id: 'resp_theirs',
  object: 'response',
  status: 'completed',
  output: [thought, search, cited, patch],
  usage: { input_tokens: 3, output_tokens: 2 },
}
const patched = { type: 'custom_tool_call_output', call_id: 'c1', output: 'done' }

const ran = { type: 'shell_call', id: 'sh_1', call_id: 'c2', status: 'completed', action: { commands: ['ls'] } }
const printed = {
  type: 'shell_call_output',
  id: 'sho_1',
  call_id: 'c2',
  status: 'completed',
  output: [{ stdout: 'mill.txt', stderr: '', outcome: { type: 'exit', exit_code: 0 } }],
}
const hosted = { ...response, output: [ran, printed, cited] }
const goOn = { role: 'user', content: 'more' }

const sql = { id: 'c1', type: 'custom', custom: { name: 'sql', input: 'select 1' } }
const spoken = { id: 'audio_1', data: 'AAAA', transcript: 'Hi', expires_at: 1 }
const completion = {
  id: 'chatcmpl-theirs',
  object: 'chat.completion',
  choices: [
    {
      index: 0,
      message: { role: 'assistant', content: null, audio: spoken, tool_calls: [sql] },
      finish_reason: 'tool_calls',
    },
  ],
  usage: { prompt_tokens: 3, completion_tokens: 2 },
}
/** As Mistral's models do it. */
const pondered = [
  { type: 'thinking', thinking: [{ type: 'text', text: 'hm' }] },
  { type: 'text', text: 'Found.' },
]
const chunk = (delta: object, finish_reason: string | null = null): object => ({
  id: 'chatcmpl-theirs',
  choices: [{ index: 0, delta, finish_reason }],
})

const blocks = [
  { type: 'thinking', thinking: 'hm', signature: 'c2ln' },
  { type: 'redacted_thinking', data: 'x' },
  { type: 'server_tool_use', id: 's1', name: 'web_search', input: { query: 'mills' } },
  { type: 'web_search_tool_result', tool_use_id: 's1', content: [] },
  { type: 'text', text: 'Found.' },
]

const cases: readonly Case[] = [
  {
    api: 'responses',
    name: 'items of other tools than functions, annotations and encrypted reasoning',
    document: response,
    events: [
      { type: 'response.created', response: { ...response, output: [], status: 'in_progress' } },
      ...response.output.map((item, output_index) => ({ type: 'response.output_item.done', output_index, item })),
      { type: 'response.completed', response },
    ],
    said: ({ id, output }) => [id, output],
    ask: (later) => ({ model: 'm', input: [{ role: 'user', content: 'go' }, ...later] }),
    // As clients that keep nothing at the server do: without ids and states.
    back: [
      { type: 'web_search_call', action: { type: 'search', query: 'mills' } },
      { role: 'assistant', content: 'Found.' },
      { type: 'custom_tool_call', call_id: 'c1', name: 'patch', input: 'a' },
      patched,
    ],
    rewritten: [search, cited, { ...patch, input: 'b' }, patched],
    recorded: {
      content: 'Found.',
      others: [search, patch].map((value) => ({ type: 'other', api: 'responses', value })),
    },
  },
  {
    api: 'responses',
    name: 'what a tool printed that the server runs',
    document: hosted,
    events: [
      { type: 'response.created', response: { ...hosted, output: [], status: 'in_progress' } },
      ...hosted.output.map((item, output_index) => ({ type: 'response.output_item.done', output_index, item })),
      { type: 'response.completed', response: hosted },
    ],
    said: ({ id, output }) => [id, output],
    ask: (later) => ({ model: 'm', input: [{ role: 'user', content: 'go' }, ...later] }),
    back: [ran, { ...printed, id: undefined }, cited, goOn],
    rewritten: [ran, { ...printed, output: [] }, cited, goOn],
    recorded: {
      content: 'Found.',
      others: [ran, printed].map((value) => ({ type: 'other', api: 'responses', value })),
    },
  },
  {
    api: 'chat',
    name: 'custom tool calls and audio',
    document: completion,
    events: [
      chunk({ role: 'assistant', content: '' }),
      chunk({ audio: { id: 'audio_1', transcript: 'H' } }),
      chunk({ audio: { data: 'AA', transcript: 'i' } }),
      chunk({ tool_calls: [{ index: 0, id: 'c1', type: 'custom', custom: { name: 'sql', input: 'select' } }] }),
      chunk({ tool_calls: [{ index: 0, custom: { input: ' 1' } }] }),
      chunk({ audio: { data: 'AA', expires_at: 1 } }),
      chunk({}, 'tool_calls'),
    ],
    said: ({ id, choices }) => [id, (choices as [{ message: object }])[0].message],
    ask: (later) => ({ model: 'm', messages: [{ role: 'user', content: 'go' }, ...later] }),
    back: [
      { role: 'assistant', audio: { id: 'audio_1' }, tool_calls: [sql] },
      { role: 'tool', tool_call_id: 'c1', content: '1' },
    ],
    rewritten: [
      { role: 'assistant', audio: { id: 'audio_1' }, tool_calls: [{ ...sql, custom: { name: 'sql', input: 'drop' } }] },
      { role: 'tool', tool_call_id: 'c1', content: '1' },
    ],
    recorded: { content: null, others: [{ value: sql }, { value: { audio: spoken } }] },
  },
  {
    api: 'chat',
    name: 'thoughts within the content',
    document: {
      ...completion,
      choices: [{ index: 0, message: { role: 'assistant', content: pondered }, finish_reason: 'stop' }],
    },
    events: [
      chunk({ role: 'assistant', content: '' }),
      chunk({ content: [{ type: 'thinking', thinking: [{ type: 'text', text: 'h' }] }] }),
      chunk({ content: [{ type: 'thinking', thinking: [{ type: 'text', text: 'm' }] }] }),
      chunk({ content: [{ type: 'text', text: 'Fou' }] }),
      chunk({ content: 'nd.' }),
      chunk({}, 'stop'),
    ],
    said: ({ id, choices }) => [id, (choices as [{ message: object }])[0].message],
    ask: (later) => ({ model: 'm', messages: [{ role: 'user', content: 'go' }, ...later] }),
    back: [{ role: 'assistant', content: pondered }, goOn],
    rewritten: [{ role: 'assistant', content: [pondered[0], { type: 'text', text: 'Lost.' }] }, goOn],
    recorded: { content: 'Found.', reasoning_content: 'hm' },
  },
  {
    api: 'messages',
    name: 'signed and redacted thinking, and tools that the server runs',
    document: messagesReply(blocks),
    events: messagesEvents(blocks),
    said: ({ id, content }) => [id, content],
    ask: (later) => ({ model: 'm', max_tokens: 9, messages: [{ role: 'user', content: 'go' }, ...later] }),
    back: [
      { role: 'assistant', content: blocks.slice(2) },
      { role: 'user', content: 'more' },
    ],
    rewritten: [
      { role: 'assistant', content: blocks.slice(3) },
      { role: 'user', content: 'more' },
    ],
    recorded: {
      content: 'Found.',
      reasoning_content: 'hm',
      others: blocks.slice(1, 4).map((value) => ({ type: 'other', api: 'messages', value })),
    },
  },
]

async function serve(given: Case): Promise<ScriptedServer> {
  return ScriptedServer.start((reply, { body }) => {
    if (!body.includes('"stream":true')) {
      sendJson(reply, given.document)
      return
    }
    reply.writeHead(200, { 'content-type': 'text/event-stream' })
    reply.end(given.events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join(''))
  })
}

/** What a client makes of a stream. */
async function wholeOf(api: ApiName, events: readonly unknown[]): Promise<Record<string, unknown>> {
  const documents = events.filter((event) => isJsonObject(event))
  if (api === 'messages') {
    const lines = documents.map((event) => `${JSON.stringify(event)}\n`).join('')
    const message = await MessageStream.fromReadableStream(new Blob([lines]).stream()).finalMessage()
    return JSON.parse(JSON.stringify(message)) as Record<string, unknown>
  }
  if (api === 'responses') {
    const items = documents.flatMap(({ type, item }) => (type === 'response.output_item.done' ? [item] : []))
    const { response: whole } = documents.at(-1) as { response: Record<string, unknown> }
    expect(items).toEqual(whole['output'])
    return whole
  }
  const message: Record<string, unknown> = {}
  for (const { choices } of documents) Object.assign(message, (choices as { delta?: object }[])[0]?.delta)
  const { tool_calls: calls, refusal: _none, ...said } = message as { tool_calls?: object[]; refusal: unknown }
  const numberless = calls?.map((call) => Object.assign({}, call, { index: undefined }))
  const choice = { message: { ...said, ...(numberless && { tool_calls: numberless }) } }
  return { id: documents[0]?.['id'], choices: [choice] }
}

test.each(cases)('$api: $name are recorded, repeated and recognised', async (given) => {
  const { api, ask, back, rewritten, said, document, recorded } = given
  await using server = await serve(given)
  await using open = await OpenGateway.open({
    models: [{ name: 'm', api, maxTries: 1, backends: [{ url: server.url }] }],
  })
  for (const stream of [false, true]) {
    const { id, caller } = await open.session()
    const first = { ...ask([]), stream }
    await open.ask(caller, first, { api })
    const [, reply] = await open.nodes(id)
    expect(reply?.message).toMatchObject(recorded)
    const asked = server.requests.length

    const again = await open.ask(caller, first, { api, retryCount: 1 })
    expect(server.requests).toHaveLength(asked)
    const whole = stream ? await wholeOf(api, again.events) : again.document
    expect(said(whole)).toEqual(said({ ...document }))

    await open.ask(caller, ask(back), { api })
    await open.ask(caller, ask(rewritten), { api })
    const parents = (await open.nodes(id)).map(({ message, parent }) => [message.role, parent])
    // What is sent back goes on from the reply. What was changed is another message beside it.
    expect(parents.slice(2, 4)).toEqual([
      [expect.any(String), reply?.seq],
      ['assistant', 2],
    ])
    expect(parents[4]).toEqual(['assistant', 0])
  }
})

test('a backend of another API does not receive content that only the first API supports', async () => {
  const [given] = cases
  if (!given) throw new Error('there is no case')
  await using server = await serve(given)
  const backends = [{ url: server.url }]
  await using open = await OpenGateway.open({
    models: [
      { name: 'm', api: 'responses', maxTries: 1, backends },
      { name: 'chat', api: 'chat', maxTries: 1, backends },
    ],
  })
  const { caller } = await open.session()
  await open.ask(caller, given.ask([]), { api: 'responses' })
  const more = { model: 'chat', previous_response_id: 'resp_theirs', input: 'go on' }
  const refused = await open.ask(caller, more, { api: 'responses' })
  expect(refused.status).toBe(400)
  expect(refused.text).toContain('web_search_call in an earlier message, custom_tool_call in an earlier message')
  const goesOn = await open.ask(caller, { ...more, model: 'm' }, { api: 'responses' })
  expect(goesOn.status).toBe(200)
  expect(JSON.parse(server.requests.at(-1)?.body ?? '')).toMatchObject({
    input: expect.arrayContaining([search, patch]),
  })
})

test.each(['item_reference', null, undefined])(
  'items are recognised by their ids alone, whatever their type (type %s)',
  async (type) => {
    const [given] = cases
    if (!given) throw new Error('there is no case')
    await using server = await serve(given)
    await using open = await OpenGateway.open({
      models: [{ name: 'm', api: 'responses', maxTries: 1, backends: [{ url: server.url }] }],
    })
    const { id, caller } = await open.session()
    await open.ask(caller, given.ask([]), { api: 'responses' })
    const referred = response.output.map((item) => ({ type, id: item.id }))
    const { status } = await open.ask(caller, given.ask([...referred, patched]), { api: 'responses' })
    expect(status).toBe(200)
    const said = (await open.nodes(id)).map(({ message, parent }) => [message.role, parent])
    expect(said.slice(1, 3)).toEqual([
      ['assistant', 0],
      ['tool', 1],
    ])
  },
)

test.each([false, true])(
  'a continued reply keeps the fields that only its API knows, in both directions (stream %s)',
  async (stream) => {
    const [given] = cases
    if (!given) throw new Error('there is no case')
    await using server = await serve(given)
    await using open = await OpenGateway.open({
      models: [{ name: 'm', api: 'responses', maxTries: 1, backends: [{ url: server.url }] }],
    })
    const { caller } = await open.session()
    await open.ask(caller, given.ask([]), { api: 'responses' })
    const said = {
      instructions: 'Be brief.',
      include: ['reasoning.encrypted_content'],
      reasoning: { effort: 'low', summary: 'auto' },
      // This API takes a tool that does not say so for a strict one.
      tools: [{ type: 'function', name: 'f', parameters: { type: 'object', properties: {} } }, { type: 'web_search' }],
      text: { verbosity: 'low', format: { type: 'text' } },
      stream_options: { include_obfuscation: false },
      top_k: 4,
      stream,
    }
    const named = { model: 'm', ...said, previous_response_id: 'resp_theirs', input: [patched] }
    const received = await open.ask(caller, named, { api: 'responses' })
    expect(JSON.parse(server.requests.at(-1)?.body ?? '')).toEqual({
      model: 'm',
      ...said,
      input: [{ role: 'user', content: 'go' }, ...response.output, patched],
    })
    const told = stream ? await wholeOf('responses', received.events) : received.document
    expect(told).toMatchObject({ id: 'resp_theirs', previous_response_id: 'resp_theirs', output: response.output })
  },
)

test('model call events contain the whole conversation if the client sends only a previous_response_id', async () => {
  await using server = await ScriptedServer.start((reply) => sendJson(reply, { ...response, usage: undefined }))
  await using open = await OpenGateway.open({
    models: [{ name: 'm', api: 'responses', maxTries: 1, backends: [{ url: server.url }] }],
  })
  const { caller } = await open.session()
  const asked: (readonly Message[])[] = []
  using _listening = modelCalls.subscribe((event) => {
    if (event.kind === 'end') asked.push(event.call.request.messages)
  })
  await open.ask(caller, { model: 'm', input: 'go' }, { api: 'responses' })
  const named = { model: 'm', instructions: 'Be brief.', input: 'and then?', previous_response_id: 'resp_theirs' }
  await open.ask(caller, named, { api: 'responses' })
  expect(asked[1]?.map(({ role }) => role)).toEqual(['system', 'user', 'assistant', 'user'])
  expect(asked[1]?.at(-1)?.content).toBe('and then?')
})

test('signed thinking is sent to the backend if a client of another API continues the reply by its id', async () => {
  const thinking = { type: 'thinking', thinking: 'hm', signature: 'c2ln' }
  const called = { type: 'tool_use', id: 'c1', name: 'f', input: {} }
  await using server = await ScriptedServer.start((reply) => sendJson(reply, messagesReply([thinking, called])))
  await using open = await OpenGateway.open({
    models: [{ name: 'm', api: 'messages', maxTries: 1, backends: [{ url: server.url }] }],
  })
  const { caller } = await open.session()
  const asked = { model: 'm', input: 'go' }
  const first = await open.ask(caller, asked, { api: 'responses' })
  const again = await open.ask(caller, asked, { api: 'responses', retryCount: 1 })
  expect(again.document['output']).toEqual(first.document['output'])
  const result = { type: 'function_call_output', call_id: 'c1', output: 'done' }
  const named = { model: 'm', input: [result], previous_response_id: first.document['id'] }
  expect((await open.ask(caller, named, { api: 'responses' })).status).toBe(200)
  const { messages } = JSON.parse(server.requests.at(-1)?.body ?? '') as { messages: object[] }
  expect(messages[1]).toEqual({ role: 'assistant', content: [thinking, called] })
})

test('a reference to a reply that has just ended is resolved, however its type is escaped', async () => {
  const [given] = cases
  if (!given) throw new Error('there is no case')
  await using server = await serve(given)
  await using open = await OpenGateway.open({
    models: [{ name: 'm', api: 'responses', maxTries: 1, backends: [{ url: server.url }] }],
  })
  const { caller } = await open.session()
  await open.ask(caller, given.ask([]), { api: 'responses' })
  const referred = response.output.map((item) => ({ type: 'item_reference', id: item.id }))
  const body = JSON.stringify(given.ask([...referred, patched])).replaceAll(
    'item_reference',
    String.raw`item\u005freference`,
  )
  expect((await open.ask(caller, body, { api: 'responses' })).status).toBe(200)
})

test.each([
  ['conversation', { conversation: 'conv_1', input: 'go on' }],
  ['prompt', { prompt: { id: 'pmpt_1' } }],
  ['input[0].type item_reference', { input: [{ type: 'item_reference', id: 'msg_elsewhere' }] }],
])('a reference to state that only the provider has is refused in a session (%s)', async (name, said) => {
  const [given] = cases
  if (!given) throw new Error('there is no case')
  await using server = await serve(given)
  await using open = await OpenGateway.open({
    models: (['responses', 'chat'] as const).map((api) => ({
      name: api === 'chat' ? 'chat' : 'm',
      api,
      maxTries: 1,
      backends: [{ url: server.url }],
    })),
  })
  const { id, caller } = await open.session()
  // Whoever is asked: it is of no use to ask somebody else.
  for (const model of ['m', 'chat']) {
    const refused = await open.ask(caller, { model, ...said }, { api: 'responses' })
    expect(refused).toMatchObject({ status: 400, document: { error: { param: name } } })
    expect(refused.text).toContain('send the request without a session')
  }
  expect(await open.nodes(id)).toEqual([])
  expect(server.requests).toEqual([])
  // Without a session nothing is recorded that could lack it.
  const passed = await open.ask(admin, { model: 'm', ...said }, { api: 'responses' })
  expect(passed.status).toBe(200)
  expect(JSON.parse(server.requests[0]?.body ?? '')).toEqual({ model: 'm', ...said })
})

test('invalid JSON arguments reach a Messages client in a stream if they are known before it begins', async () => {
  const written = "{'expression': '6 * 7'}"
  const call = { id: 'c1', type: 'function', function: { name: 'calculator', arguments: written } }
  const message = { role: 'assistant', content: null, tool_calls: [call] }
  const choices = [{ index: 0, message, finish_reason: 'tool_calls' }]
  await using server = await ScriptedServer.start((reply) => sendJson(reply, chatReply('', { choices })))
  // Its streams are asked for whole.
  const backends = [{ url: server.url, engine: 'sglang' as const }]
  await using open = await OpenGateway.open({ models: [{ name: 'm', maxTries: 1, backends }] })
  const { id, caller } = await open.session()
  const first = { model: 'm', max_tokens: 9, stream: true, messages: [{ role: 'user', content: 'What is 6 * 7?' }] }
  for (const retryCount of [0, 1]) {
    const said = await open.ask(caller, first, { api: 'messages', retryCount })
    const { content } = (await wholeOf('messages', said.events)) as { content: object[] }
    expect(content).toMatchObject([{ type: 'tool_use', input: { INVALID_JSON: written } }])
    const result = { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'c1', content: 'no JSON' }] }
    const messages = [...first.messages, { role: 'assistant', content }, result]
    await open.ask(caller, { ...first, messages }, { api: 'messages' })
  }
  const nodes = await open.nodes(id)
  expect(nodes[1]?.message).toMatchObject({ tool_calls: [{ function: { arguments: written } }] })
  expect(nodes.map(({ parent }) => parent)).toEqual([null, 0, 1, 2, 2])
})

test('a seed beyond the double range is passed on as written', async () => {
  const document = {
    id: 'c',
    choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: 'hi' } }],
  }
  await using server = await ScriptedServer.start((reply) => sendJson(reply, document))
  await using open = await OpenGateway.open({ models: [{ name: 'm', maxTries: 1, backends: [{ url: server.url }] }] })
  const { caller } = await open.session()
  const body = '{"model":"m","seed":9223372036854775807,"messages":[{"role":"user","content":"hi"}]}'
  expect((await open.ask(caller, body)).status).toBe(200)
  expect(server.requests[0]?.body).toContain('"seed":9223372036854775807,')
})

test.each([
  [false, { stop_reason: 'stop_sequence', stop_sequence: 'END' }],
  [true, { stop_reason: 'stop_sequence', stop_sequence: 'END' }],
  // Clients send it back as it is, so that the server goes on: of one that was cut off they do not.
  [false, { stop_reason: 'pause_turn', stop_sequence: null }],
  [true, { stop_reason: 'pause_turn', stop_sequence: null }],
  [false, { stop_reason: 'model_context_window_exceeded', stop_sequence: null }],
])('a repeated reply has the same stop reason, also in a stream (%s, %j)', async (stream, end) => {
  const document = messagesReply([{ type: 'text', text: 'hi' }], end)
  const events = messagesEvents([{ type: 'text', text: 'hi' }]).map((event) =>
    JSON.stringify(event).includes('"message_delta"')
      ? { type: 'message_delta', delta: end, usage: { output_tokens: 2 } }
      : event,
  )
  await using server = await serve({ ...(cases[0] as Case), document, events })
  await using open = await OpenGateway.open({
    models: [{ name: 'm', api: 'messages', maxTries: 1, backends: [{ url: server.url }] }],
  })
  const { caller } = await open.session()
  const body = {
    model: 'm',
    max_tokens: 9,
    messages: [{ role: 'user', content: 'go' }],
    stop_sequences: ['END'],
    stream,
  }
  for (const retryCount of [0, 1]) {
    const received = await open.ask(caller, body, { api: 'messages', retryCount })
    const said = stream ? await wholeOf('messages', received.events) : received.document
    expect(said).toMatchObject(end)
  }
  expect(server.requests).toHaveLength(1)
})

test('a reply nested too deep for the store is recorded without its original document', async () => {
  let nested: unknown[] = []
  for (let depth = 0; depth < 1100; depth += 1) nested = [nested]
  const called = { type: 'server_tool_use', id: 's1', name: 'web_search', input: { nested } }
  await using server = await ScriptedServer.start((reply) => sendJson(reply, messagesReply([called])))
  await using open = await OpenGateway.open({
    models: [{ name: 'm', api: 'messages', maxTries: 1, backends: [{ url: server.url }] }],
  })
  const { id, caller } = await open.session()
  const body = { model: 'm', max_tokens: 9, messages: [{ role: 'user', content: 'go' }] }
  expect((await open.ask(caller, body, { api: 'messages' })).document).toMatchObject({ content: [called] })
  expect((await open.nodes(id)).map(({ message }) => message.role)).toEqual(['user', 'assistant'])
})
