import { expect, test } from 'vitest'
import { OpenGateway } from '../../../test/support/gateway/open-gateway.ts'
import { beginEvents, doneEvent, tokenChunk } from '../../../test/support/gateway/token-chunks.ts'
import { chatReply, ScriptedServer, sendJson } from '../../../test/support/inference/scripted-server.ts'
import type { Json, Message } from '../../schema/index.ts'
import { templateRoles } from './upstream-request.ts'

const system = (content: string): Message => ({ role: 'system', content })
const developer = (content: string): Message => ({ role: 'developer', content })
const user = (content: string): Message => ({ role: 'user', content })
const assistant = (content: string): Message => ({ role: 'assistant', content })
const tool = (content: string): Message => ({ role: 'tool', tool_call_id: 'c', content })

test('a conversation that fits chat templates is returned unchanged', () => {
  const said = [system('s'), user('u'), assistant('a'), tool('t'), user('v')]
  expect(templateRoles(said)).toBe(said)
  expect(templateRoles([])).toEqual([])
})

test('instructions at the beginning become one system message', () => {
  expect(templateRoles([developer('a'), user('u')])).toEqual([system('a'), user('u')])
  expect(templateRoles([system('a'), developer('b'), system('c'), user('u')])).toEqual([
    system('a\n\nb\n\nc'),
    user('u'),
  ])
})

test('later instructions become part of the user turn', () => {
  expect(templateRoles([user('u'), system('s'), assistant('a'), tool('t'), developer('d'), assistant('b')])).toEqual([
    user('u\n\ns'),
    assistant('a'),
    tool('t'),
    user('d'),
    assistant('b'),
  ])
})

test('consecutive user messages become one, unless a speaker is named', () => {
  const named: Message = { role: 'user', name: 'Ada', content: 'n' }
  expect(templateRoles([user('u'), user('v'), named, user('w')])).toEqual([user('u\n\nv'), named, user('w')])
})

test('text parts become one text, and images stay in place', () => {
  const text = { type: 'text', text: 'a' } as const
  const image = { type: 'image_url', image_url: { url: 'https://x.example/i.png' } } as const
  expect(templateRoles([{ role: 'user', content: [text, text] }, system('s')])).toEqual([user('a\n\na\n\ns')])
  expect(templateRoles([{ role: 'user', content: [text, image] }, system('s')])).toEqual([
    { role: 'user', content: [text, image, { type: 'text', text: 's' }] },
  ])
})

test('the beginning of a conversation does not change when it continues', () => {
  const begun = [developer('a'), system('b'), user('u'), system('c')]
  const next = [...begun, assistant('x'), tool('t'), system('d'), user('v'), assistant('y'), user('w')]
  const before = templateRoles(begun)
  expect(templateRoles(next).slice(0, before.length)).toEqual(before)
})

/** As a model writes it, with a space that no client keeps. */
const sampled = '{"input": "ls"}'

test('a Chat backend gets the adapted conversation, with its functions and calls', async () => {
  await using server = await ScriptedServer.start((response) => {
    const call = { id: 'c1', type: 'function', function: { name: 'shell__exec', arguments: sampled } }
    const message = { role: 'assistant', content: null, tool_calls: [call] }
    sendJson(response, chatReply('', { choices: [{ index: 0, message, finish_reason: 'tool_calls' }] }))
  })
  await using gateway = await OpenGateway.open({ models: [{ name: 'm', backends: [{ url: server.url }] }] })
  const { id, caller } = await gateway.session()
  const tools: Json = [{ type: 'namespace', name: 'shell', tools: [{ type: 'custom', name: 'exec' }] }]
  const input: Json[] = [
    { role: 'developer', content: 'a' },
    { role: 'user', content: 'u' },
    { role: 'developer', content: 'b' },
  ]
  const ask = () => gateway.ask(caller, { model: 'm', instructions: 's', tools, input }, { api: 'responses' })
  const { output } = JSON.parse((await ask()).text) as { output: Json[] }
  expect(output).toMatchObject([{ type: 'custom_tool_call', namespace: 'shell', name: 'exec', input: 'ls' }])
  input.push(...output, { type: 'custom_tool_call_output', call_id: 'c1', output: 'a.txt' })
  await ask()
  const sent = JSON.parse(server.requests.at(-1)?.body ?? '{}') as Record<string, unknown>
  expect(sent['messages']).toMatchObject([
    system('s\n\na'),
    user('u\n\nb'),
    { role: 'assistant', tool_calls: [{ function: { name: 'shell__exec', arguments: sampled } }] },
    { role: 'tool', tool_call_id: 'c1', content: 'a.txt' },
  ])
  expect(sent['tools']).toMatchObject([{ function: { name: 'shell__exec', parameters: { required: ['input'] } } }])
  // The record has the roles of the client, and one conversation.
  const nodes = await gateway.nodes(id)
  expect(nodes.map(({ parent }) => parent)).toEqual([null, 0, 1, 2, 3, 4, 5])
  expect(nodes.map(({ message }) => message.role).join(' ')).toBe(
    'system developer user developer assistant tool assistant',
  )
})

const rejected = { error: { message: 'that is no temperature', type: 'invalid_request_error', param: 'temperature' } }

/** Answers, whole or as a stream, unless the temperature is too high. */
async function choosy(
  capturesTokens: boolean,
): Promise<{ server: ScriptedServer; open: OpenGateway } & AsyncDisposable> {
  await using ends = new AsyncDisposableStack()
  const server = ends.use(
    await ScriptedServer.start((response, { body }) => {
      const { temperature, stream } = JSON.parse(body) as { temperature?: number; stream?: boolean }
      if (temperature === 9) return sendJson(response, rejected, 400)
      if (!stream) return sendJson(response, chatReply('Hello'))
      beginEvents(response)
      response.end(tokenChunk('Hello', { finish: 'stop' }) + doneEvent)
    }),
  )
  const models = [{ name: 'm', maxTries: 1, backends: [{ url: server.url }] }]
  const open = ends.use(await OpenGateway.open({ models, facts: { m: { capturesTokens } } }))
  const moved = ends.move()
  return { server, open, [Symbol.asyncDispose]: () => moved.disposeAsync() }
}

const hot = { model: 'm', messages: [{ role: 'user', content: 'hi' }], temperature: 9 }

test('a request refused in its original form is not repeated', async () => {
  await using setup = await choosy(false)
  const { caller } = await setup.open.session()
  expect((await setup.open.ask(caller, hot)).status).toBe(400)
  expect(setup.server.requests).toHaveLength(1)
})

test.each([
  ['with tokens', true, {}],
  ['as a stream with its usage', false, { stream: true }],
])(
  'the additional fields (%s) are left out of one retry, unless an earlier request with them worked',
  async (...given) => {
    const [, capturesTokens, more] = given
    await using setup = await choosy(capturesTokens)
    const { caller } = await setup.open.session()
    expect((await setup.open.ask(caller, { ...hot, ...more })).status).toBe(400)
    expect(setup.server.requests).toHaveLength(2)
    expect((await setup.open.ask(caller, { ...hot, ...more, temperature: 1 })).status).toBe(200)
    expect((await setup.open.ask(caller, { ...hot, ...more })).status).toBe(400)
    expect(setup.server.requests).toHaveLength(4)
  },
)

/** As vLLM refuses it. */
const tooLarge =
  "'max_tokens' or 'max_completion_tokens' is too large: 128000. This model's maximum context length is 40960 tokens and your request has 13378 input tokens (128000 > 40960 - 13378)."

test.each([
  ['messages', { messages: [{ role: 'user', content: 'hi' }], max_tokens: 128_000 }, 200, 2],
  ['responses', { input: 'hi', max_output_tokens: 128_000 }, 200, 2],
  ['chat', { messages: [{ role: 'user', content: 'hi' }], max_tokens: 128_000 }, 400, 1],
] as const)('a token limit that is too large is left out of a translated request: %s', async (...given) => {
  const [api, asked, status, tries] = given
  await using server = await ScriptedServer.start((response, { body }) => {
    if (body.includes('128000')) sendJson(response, { error: { message: tooLarge, type: 'BadRequestError' } }, 400)
    else sendJson(response, chatReply('Hello'))
  })
  const models = [{ name: 'm', maxTries: 1, backends: [{ url: server.url }] }]
  await using open = await OpenGateway.open({ models })
  const { id, caller } = await open.session()
  const reply = await open.ask(caller, { model: 'm', ...asked }, { api })
  expect(reply.status, reply.text).toBe(status)
  expect(server.requests).toHaveLength(tries)
  const dropped = (await open.nodes(id)).flatMap(({ call }) => call?.dropped ?? [])
  expect(dropped).toEqual(api === 'chat' ? [] : [api === 'responses' ? 'max_output_tokens' : 'max_tokens'])
})
