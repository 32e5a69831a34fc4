import { afterAll, beforeAll, expect, test } from 'vitest'
import { admin, OpenGateway } from '../../../test/support/gateway/open-gateway.ts'
import { chatServer } from '../../apis/chat/write-reply.ts'
import { generateServer } from '../../apis/generate/write-reply.ts'
import { ScriptedServer } from '../../../test/support/inference/scripted-server.ts'
import type { ReplyEvent } from '../../apis/backend.ts'
import type { JsonObject } from '../../schema/index.ts'
import { SimulatorServer } from '../../simulator/index.ts'
import { asksForTokens, chatView, generateView, PassedStream } from './client-reply.ts'

const event = (data: string, isEnd = false): ReplyEvent => ({
  data,
  document: data === '[DONE]' ? undefined : (JSON.parse(data) as object),
  deltas: [],
  isEnd,
})

const finish = '{"choices":[{"index":0,"finish_reason":"stop"}]}'

test('the client gets the end of a stream only when the reply is complete', () => {
  const stream = new PassedStream('chat', undefined)
  expect(stream.event(event('{"choices":[]}'))).toBe('data: {"choices":[]}\n\n')
  // A server that stops sending says this, too, whether or not its reply was complete.
  expect(stream.event(event('[DONE]'))).toBe('')
  expect(stream.event(event(finish, true))).toBe('')
  expect(stream.end()).toBe(`data: ${finish}\n\ndata: [DONE]\n\n`)
})

test('an event written over several lines is sent on one line', () => {
  const stream = new PassedStream('chat', undefined)
  expect(stream.event(event('{"choices":\n[]\r}'))).toBe('data: {"choices":[]}\n\n')
})

test('a type that is not an event name is not sent as one', () => {
  const stream = new PassedStream('responses', undefined)
  const odd = '{"type":"a\\ndata: {}"}'
  expect(stream.event(event(odd))).toBe(`data: ${odd}\n\n`)
  expect(stream.event(event('{"type":"response.created"}'))).toBe(
    'event: response.created\ndata: {"type":"response.created"}\n\n',
  )
})

test.each([
  ['on the loop', 1_500],
  ['from a thread', 30_000],
])('a recorded reply reaches the client unchanged except for its tokens: read %s', async (_where, count) => {
  const ids = Array.from({ length: count }, (_, index) => index)
  const before = '{ "id":"chatcmpl-1", "choices":[{"index":0, "message":{"role":"assistant","content":"h\\u00e9"},'
  const after =
    '"finish_reason":"stop"}],"usage":{"prompt_tokens":1e0,"completion_tokens":2}, "big":12345678901234567890}'
  const logprobs = '{"content":[{"token":"h","logprob":-0.50,"bytes":null},{"token":"e","logprob":-1,"bytes":null}]}'
  const tokens = `"logprobs":${logprobs}, "token_ids":[7, 8],`
  const text = `${before}${tokens}${after.slice(0, -1)},"prompt_token_ids":[${ids.join(', ')}]}`
  await using server = await ScriptedServer.start((response) =>
    response.writeHead(200, { 'content-type': 'application/json' }).end(text),
  )
  const models = [{ name: 'm', maxTries: 1, backends: [{ url: server.url }] }]
  await using open = await OpenGateway.open({ models, facts: { m: { capturesTokens: true } } })
  const { id, caller } = await open.session()
  const body = { model: 'm', messages: [{ role: 'user', content: 'hi' }] }
  const client = await open.ask(caller, body)
  expect(client.text).toBe(`${before}"logprobs":null,${after}`)
  const [, reply] = await open.nodes(id)
  expect(reply?.tokens).toEqual({
    promptIds: Int32Array.from(ids),
    ids: Int32Array.of(7, 8),
    logprobs: Float32Array.of(-0.5, -1),
  })
  // Who asks for them sees them.
  expect((await open.ask(caller, { ...body, logprobs: true, return_token_ids: true })).text).toBe(text)
})

function requestWith(fields: JsonObject = {}): ReturnType<typeof chatServer.read> {
  return chatServer.read({ model: 'm', messages: [{ role: 'user', content: 'x' }], stream: true, ...fields })
}

const viewFor = (document: object, fields?: JsonObject) => chatView(requestWith(fields))(document)

const vllm = { index: 0, delta: { content: 'a' }, token_ids: [1], logprobs: { content: [] }, routed_experts: 'x' }
const chunk = { id: 'chatcmpl-1', choices: [vllm], usage: null, prompt_token_ids: [1, 2], system_fingerprint: 'f' }
const sglang = { index: 0, message: {}, logprobs: null, prompt_token_ids: [1], meta_info: { id: 'r' }, sgl_ext: {} }
const reply = {
  id: 'r',
  choices: [sglang],
  usage: {},
  metadata: { weight_version: '1' },
  sglext: { routed_experts: '' },
}

test('fields that only the record needs are removed for the client', () => {
  expect(viewFor(chunk)).toEqual({
    id: 'chatcmpl-1',
    choices: [{ index: 0, delta: { content: 'a' }, logprobs: null }],
    system_fingerprint: 'f',
  })
  expect(viewFor(reply, { stream: false })).toEqual({
    id: 'r',
    choices: [{ index: 0, message: {}, logprobs: null }],
    usage: {},
    metadata: { weight_version: '1' },
  })
  expect(asksForTokens(requestWith())).toBe(false)
})

test('fields that the client requested stay, for each engine', () => {
  const usage = { stream_options: { include_usage: true } }
  expect(viewFor(chunk, { ...usage, logprobs: true, return_token_ids: true })).toEqual(chunk)
  const { sgl_ext: _left, ...kept } = sglang
  const asked = { stream: false, return_prompt_token_ids: true, return_meta_info: true }
  expect(viewFor(reply, asked)).toMatchObject({ choices: [kept] })
  expect(viewFor(reply, { stream: false, return_routed_experts: true })).toHaveProperty('sglext')
  for (const flag of ['logprobs', 'return_token_ids', 'return_meta_info', 'return_routed_experts']) {
    expect(asksForTokens(requestWith({ [flag]: true }))).toBe(true)
  }
})

test('a reply without hidden fields is passed on as the same object', () => {
  const plain = { id: 'r', choices: [{ index: 0, message: {}, logprobs: null }], usage: {} }
  expect(viewFor(plain, { stream: false })).toBe(plain)
  expect(viewFor(reply, { stream: false })).not.toBe(reply)
  expect(viewFor({ ...plain, sglext: {} }, { stream: false })).toEqual(plain)
})

test('a usage chunk is sent only to a client that requested usage', () => {
  const last = { id: 'chatcmpl-1', choices: [], usage: { prompt_tokens: 1 } }
  expect(viewFor(last)).toBeUndefined()
  expect(viewFor(last, { stream_options: { include_usage: true } })).toEqual(last)
  // Not every chunk without choices is that one.
  expect(viewFor({ id: 'x', choices: [] })).toEqual({ id: 'x', choices: [] })
})

const generated = {
  text: 'a',
  output_ids: [1],
  prompt_token_ids: [5],
  meta_info: {
    id: 'r',
    output_token_logprobs: [[-1, 1, 'a']],
    output_token_logprobs_length: 1,
    input_token_logprobs: [],
    routed_experts: 'AAAA',
  },
}

const seenOfGenerated = (fields: JsonObject) => generateView(generateServer.read({ text: 'x', ...fields }))(generated)

test('fields that only the record needs are removed from generate replies', () => {
  expect(seenOfGenerated({})).toEqual({ text: 'a', output_ids: [1], meta_info: { id: 'r' } })
})

test('fields that the client requested stay in generate replies', () => {
  const all = { return_logprob: true, return_prompt_token_ids: true, return_routed_experts: true }
  // The generated itself, so that its client gets it as it was written.
  expect(seenOfGenerated(all)).toBe(generated)
  expect(seenOfGenerated({ return_routed_experts: true })).toEqual({
    text: 'a',
    output_ids: [1],
    meta_info: { id: 'r', routed_experts: 'AAAA' },
  })
})

/** What names one reply and no other. */
const ownMarks = /"(id|created)":("[^"]*"|\d+)/g

const asked = [{ logprobs: true }, { logprobs: true, top_logprobs: 2 }, { return_token_ids: true }, {}].flatMap(
  (fields) => [fields, { ...fields, stream: true }],
)

/** Two gateways, one with the simulator in its process and one that reaches it over HTTP; the cases have sessions of their own. */
const opened = new AsyncDisposableStack()
const gateways: OpenGateway[] = []

beforeAll(async () => {
  const server = opened.use(await SimulatorServer.start({}))
  for (const backend of [{ simulator: {} }, { backends: [{ url: server.url }] }]) {
    gateways.push(opened.use(await OpenGateway.open({ models: [{ name: 'sim', ...backend }] })))
  }
})
afterAll(() => opened.disposeAsync())

test.each(asked)('the simulator gives the same tokens in process and over HTTP: %j', async (fields) => {
  const said: unknown[] = []
  for (const gateway of gateways) {
    const { id, caller } = await gateway.session()
    const request = { model: 'sim', messages: [{ role: 'user', content: 'What is 12 + 3?' }], ...fields }
    const recorded = await gateway.ask(caller, request)
    const alone = await gateway.ask(admin, request)
    expect(recorded.status).toBe(200)
    const { tokens, alarms } = await gateway.gateway.session(admin, id)
    expect({ tokens, alarms }).toEqual({ tokens: 'all', alarms: [] })
    const nodes = await gateway.nodes(id)
    said.push({
      replies: [recorded, alone].map(({ text }) => text.replace(ownMarks, '"$1"')),
      tokens: nodes.map((node) => node.tokens),
    })
  }
  expect(said[0]).toEqual(said[1])
})
