import { expect, test } from 'vitest'
import { OpenGateway, type OpenGatewayOptions } from '../../../test/support/gateway/open-gateway.ts'
import { chatReply, ScriptedServer, sendJson } from '../../../test/support/inference/scripted-server.ts'
import type { ApiName, AssistantMessage, Json, JsonObject, Message, ToolCall } from '../../schema/index.ts'
import { bodyInRecordedSpelling } from './recorded-spelling.ts'
import { upstreamBody } from './upstream-body.ts'

const tricky = String.raw`say \"model\": \"m\" {"logprobs":`.replaceAll('{"logprobs":', String.raw`{\"logprobs\":`)

const bodies: [string, string][] = [
  ['a plain one', '{"model":"m","messages":[]}'],
  ['spaces', ' \n{ "model" : "m" , "messages" : [ ] }'],
  ['text that looks like fields', `{"messages":[{"role":"user","content":"${tricky}"}],"model":"m"}`],
  ['a field of the same name further in', '{"metadata":{"model":"x"},"model":"m"}'],
  ['a field of the same name further in, after it', '{"model":"m","metadata":{"model":"x"}}'],
  ['a name with escapes', String.raw`{"mod\u0065l":"m","messages":[]}`],
  ['a name with escapes beside one further in', String.raw`{"mod\u0065l":"m","metadata":{"model":"m"}}`],
  ['a value with escapes', String.raw`{"model":"a\/b","messages":[]}`],
  ['a text that is the name', '{"user":"model","model":"m"}'],
  ['a contradiction', '{"model":"m","logprobs":false,"stream_options":{"include_obfuscation":false}}'],
  ['the same twice', '{"model":"x","logprobs":false,"model":"m"}'],
  ['nothing but contradictions', '{"model":"m","logprobs":false,"stream_options":null}'],
  ['nothing', '{}'],
  ['nothing to add', '{"model":"m","logprobs":true,"stream_options":{"include_usage":true}}'],
]

function sentFor(text: string, fields: JsonObject): string {
  const members = JSON.parse(text) as JsonObject
  return upstreamBody({ bytes: Buffer.from(text), members }, fields).toString()
}

test.each(bodies)('%s: the backend gets the same body with our fields added', (_, text) => {
  const body = JSON.parse(text) as JsonObject
  const fields = { model: 'served "name"', logprobs: true, stream_options: { include_usage: true } }
  const sent = sentFor(text, fields)
  expect(JSON.parse(sent)).toEqual({ ...body, ...fields })
  // Some servers take the first of two fields of one name, others the last.
  expect(JSON.stringify(JSON.parse(sent)).length).toBeLessThanOrEqual(sent.length)
  expect(sent.split('"logprobs":').length).toBe(2)
})

test('conflicting fields are removed, and the others stay as written', () => {
  const tools = '[ {"parameters":{"default":1.0,"model":9223372036854775807}} ]'
  expect(
    sentFor(`{"model":"m", "logprobs":false, "tools":${tools},"seed":1e400}`, { model: 'n', logprobs: true }),
  ).toBe(`{"tools":${tools},"seed":1e400,"model":"n","logprobs":true}`)
  expect(sentFor('{"model":"m","text":"1.0"}', { model: undefined })).toBe('{"text":"1.0"}')
})

test('messages that were read earlier are sent unchanged', () => {
  const text =
    '{"model":"m","logprobs":false,"messages":[{"role":"user","content":"one"},{"role":"user","content":"two"}]}'
  const whole = JSON.parse(text) as JsonObject
  const members = { ...whole, messages: [] }
  const bytes = Buffer.from(text)
  for (const fields of [{ logprobs: true }, { model: 'n' }, { model: 'm', seed: 1 }]) {
    const sent = upstreamBody({ bytes, members }, fields).toString()
    expect(JSON.parse(sent)).toEqual({ ...whole, ...fields })
  }
})

test('a long conversation is not serialised again', () => {
  const messages = `"messages":[{"role":"user",  "content":"${'x'.repeat(1000)}"}]`
  const text = `{"model":"m",  ${messages}}`
  expect(sentFor(text, { model: 'n', logprobs: true })).toBe(`{${messages},"model":"n","logprobs":true}`)
  expect(sentFor(text, { model: 'm' })).toBe(text)
})

const sampled = '{"path": "a.txt",  "id": 9007199254740993}'
/** The same, as a client with doubles writes it that sorts keys. */
const respelled = '{"id":9007199254740992,"path":"a.txt"}'
/** Another number, which a double holds as the same. */
const changed = '{"id":9007199254740994,"path":"a.txt"}'
/** So long that a body of Chat is recognised by its bytes. */
const question: Json = { role: 'user', content: `Write it. ${'word '.repeat(2000)}` }

function turnWith(written: string, id: string): Json[] {
  const call = { id, type: 'function', function: { name: 'write', arguments: written } }
  return [
    { role: 'assistant', content: null, tool_calls: [call] },
    { role: 'tool', tool_call_id: id, content: 'done' },
  ]
}

/** A backend that calls a tool each time, and the arguments that it was sent last. */
class Caller implements AsyncDisposable {
  readonly #server: ScriptedServer

  constructor(server: ScriptedServer) {
    this.#server = server
  }

  static async start(): Promise<Caller> {
    const server = await ScriptedServer.start((response, { body }) => {
      const { messages } = JSON.parse(body) as { messages: Message[] }
      // The same question gets the same answer, so that replies have twins.
      const call = { id: `c${messages.length}`, type: 'function', function: { name: 'write', arguments: sampled } }
      const message = { role: 'assistant', content: null, tool_calls: [call] }
      sendJson(response, chatReply('', { choices: [{ index: 0, message, finish_reason: 'tool_calls' }] }))
    })
    return new Caller(server)
  }

  open(options: Partial<OpenGatewayOptions> = {}): Promise<OpenGateway> {
    return OpenGateway.open({ models: [{ name: 'm', backends: [{ url: this.#server.url }] }], ...options })
  }

  get sentArguments(): string[] {
    const { messages } = JSON.parse(this.#server.requests.at(-1)?.body ?? '{}') as { messages: AssistantMessage[] }
    return messages.flatMap(({ tool_calls: calls = [] }) => calls.map(({ function: called }) => called.arguments))
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#server[Symbol.asyncDispose]()
  }
}

const situations: [string, OpenGatewayOptions['bounds']][] = [
  ['with the calls in memory', {}],
  ['with the calls in the store only', { maxRemembered: 0 }],
]

test.each(situations)('the backend gets the recorded arguments each time, %s', async (_, bounds) => {
  await using backend = await Caller.start()
  await using gateway = await backend.open({ bounds: bounds ?? {} })
  const { id, caller } = await gateway.session()
  const messages: Json[] = [question]
  for (let turn = 0; turn < 4; turn += 1) {
    expect((await gateway.ask(caller, { model: 'm', messages })).status).toBe(200)
    expect(backend.sentArguments).toEqual(Array.from({ length: turn }, () => sampled))
    messages.push(...turnWith(respelled, `c${messages.length}`))
  }
  // Nothing was said twice.
  expect((await gateway.nodes(id)).map(({ parent }) => parent)).toEqual([null, 0, 1, 2, 3, 4, 5, 6])

  const twins = await gateway.session()
  await gateway.ask(twins.caller, { model: 'm', messages: [question] })
  await gateway.ask(twins.caller, { model: 'm', messages: [question] })
  for (const end of [3, 5]) {
    await gateway.ask(twins.caller, { model: 'm', messages: messages.slice(0, end) })
    expect(backend.sentArguments).toEqual(Array.from({ length: (end - 1) / 2 }, () => sampled))
  }
  expect((await gateway.nodes(twins.id)).map(({ parent }) => parent)).toEqual([null, 0, 0, 2, 3, 4, 5])

  const other = await gateway.session()
  await gateway.ask(other.caller, { model: 'm', messages: [question] })
  await gateway.ask(other.caller, { model: 'm', messages: [question, ...turnWith(changed, 'c1')] })
  expect(backend.sentArguments, 'what the client changed').toEqual([changed])
})

const calls = (written: readonly string[]): Message => ({
  role: 'assistant',
  content: null,
  tool_calls: written.map((text, index): ToolCall => ({
    id: `c${index}`,
    type: 'function',
    function: { name: 'f', arguments: text },
  })),
})
const spellings = { sent: [calls(['{"a":1}', '{}'])], recorded: [calls(['{"a": 1.0}', '{}'])] }

const clientBodies: [ApiName, string, string][] = [
  [
    'chat',
    ' {"n":1e400,"messages":[{"content":"x"},{"tool_calls":[{"function":{"arguments":"{\\"a\\":1}","\\u006eame":"f"}},{"function":{"arguments":"{}"}}]}]}',
    ' {"n":1e400,"messages":[{"content":"x"},{"tool_calls":[{"function":{"arguments":"{\\"a\\": 1.0}","\\u006eame":"f"}},{"function":{"arguments":"{}"}}]}]}',
  ],
  [
    'responses',
    '{"input":[{"type":"function_call","arguments":"{\\"a\\":1}"},{"type":"custom_tool_call","arguments":"x"},{"arguments":"{}","type":"function_call"}]}',
    '{"input":[{"type":"function_call","arguments":"{\\"a\\": 1.0}"},{"type":"custom_tool_call","arguments":"x"},{"arguments":"{}","type":"function_call"}]}',
  ],
  [
    'messages',
    '{"messages":[{"content":"x"},{"content":[{"type":"tool_use","input":{"a":1}},{"type":"text"},{"type":"tool_use","input":{}}]}]}',
    '{"messages":[{"content":"x"},{"content":[{"type":"tool_use","input":{"a": 1.0}},{"type":"text"},{"type":"tool_use","input":{}}]}]}',
  ],
]

test.each(clientBodies)('a body of %s keeps all its bytes except the arguments', (api, body, expected) => {
  expect(bodyInRecordedSpelling(Buffer.from(body), api, spellings).toString()).toBe(expected)
})

test.each([
  ['has another number of calls', '{"messages":[{"tool_calls":[{"function":{"arguments":"{}"}}]}]}'],
  ['has no list', '{"messages":"none"}'],
  ['cannot be walked over', '{"messages":[{"tool_calls":[{"function":{"arguments":"{}"}},}]}'],
])('a body that %s is not changed', (_, body) => {
  expect(bodyInRecordedSpelling(Buffer.from(body), 'chat', spellings).toString()).toBe(body)
})
