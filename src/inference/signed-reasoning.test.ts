import { expect, test } from 'vitest'
import type { JsonObject, Message, MessageNode } from '../schema/index.ts'
import {
  type Block,
  eventText,
  faultIn,
  type MessagesBody,
  messagesEvents,
  messagesReply,
} from '../../test/support/inference/messages-server.ts'
import { ask, openBackend } from '../../test/support/inference/open-backend.ts'
import { chatChunk, ScriptedServer, sendJson, type Handler } from '../../test/support/inference/scripted-server.ts'
import { modelConfigSchema, type ModelConfigInput } from './config.ts'
import { Model } from './model/model.ts'
import { Session } from './session.ts'

const question: Message = { role: 'user', content: 'where?' }
const answer: Message = { role: 'tool', tool_call_id: 'c1', content: 'here' }
const hooks = { signal: new AbortController().signal }

/** What a session of a model says and is told, up to its second reply; with a journal, that is repeated first. */
async function converse(
  url: string,
  {
    extra,
    name = 'm',
    journalled = [],
    ...setting
  }: Partial<ModelConfigInput> & {
    readonly extra: JsonObject
    readonly journalled?: readonly MessageNode[]
  },
): Promise<MessageNode[]> {
  await using backend = openBackend(url, { name, ...setting })
  await using model = new Model(modelConfigSchema.parse({ name, maxTries: 1 }), [backend])
  const nodes = [...journalled]
  const recorder = {
    node: (node: MessageNode) => void nodes.push(node),
    synced: () => undefined,
    version: () => undefined,
  }
  const session = new Session({
    id: 's',
    model,
    recorder,
    recorded: { nodes: journalled, journalled: journalled.length },
  })
  const turn = { tools: [], sampling: { extra }, captureTokens: false }
  session.append(question)
  await session.turn(turn, hooks)
  session.append(answer)
  await session.turn(turn, hooks)
  return nodes
}

/** As a journal gives them back. */
const journalOf = (nodes: readonly MessageNode[]): MessageNode[] =>
  JSON.parse(JSON.stringify(nodes.slice(0, 3))) as MessageNode[]

const calling: Block[] = [
  { type: 'thinking', thinking: 'let me see', signature: 'signed' },
  { type: 'redacted_thinking', data: 'dark' },
  { type: 'text', text: '\n' },
  { type: 'tool_use', id: 'c1', name: 'look', input: { x: 1 } },
]

const anthropic: Handler = (response, request) => {
  const body = JSON.parse(request.body) as MessagesBody
  const fault = faultIn(body)
  if (fault !== undefined) {
    sendJson(response, { type: 'error', error: { type: 'invalid_request_error', message: fault } }, 400)
    return
  }
  const blocks = body.messages.length === 1 ? calling : [{ type: 'text', text: 'there' }]
  if (!body.stream) {
    sendJson(response, messagesReply(blocks))
    return
  }
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  response.end(messagesEvents(blocks).map(eventText).join(''))
}

test.each([false, true])(
  'signed thinking is sent back with its call, also after a resume (stream: %s)',
  async (stream) => {
    await using server = await ScriptedServer.start(anthropic)
    const setting = { api: 'messages', stream, extra: { thinking: { type: 'enabled', budget_tokens: 1024 } } } as const
    const nodes = await converse(server.url, setting)
    const [, sent] = server.requests.map(({ body }) => (JSON.parse(body) as MessagesBody).messages[1]?.content)
    expect(sent).toEqual(calling.filter(({ type }) => type !== 'text'))
    expect(nodes[1]?.message).toMatchObject({ reasoning_content: 'let me see' })
    await converse(server.url, { ...setting, journalled: journalOf(nodes) })
    expect(server.requests).toHaveLength(3)
    expect(server.requests[2]?.body).toBe(server.requests[1]?.body)
  },
)

test.each([
  ['cut off', '{"x":', '{"INVALID_JSON":"{\\"x\\":"}'],
  ['no object', '[1]', '{"INVALID_JSON":"[1]"}'],
  ['a number that no double can hold', '{"x": 9007199254740993}', '{"x": 9007199254740993}'],
])('signed thinking is sent back with a call whose arguments are %s', async (_what, written, input) => {
  const given = { type: 'content_block_delta', index: 3, delta: { type: 'input_json_delta', partial_json: written } }
  const events = messagesEvents(calling).filter((event) => !JSON.stringify(event).includes('input_json_delta'))
  events.splice(events.findIndex((event) => JSON.stringify(event).includes('tool_use')) + 1, 0, given)
  await using server = await ScriptedServer.start((response, request) => {
    const body = JSON.parse(request.body) as MessagesBody
    const fault = faultIn(body)
    if (fault !== undefined) {
      sendJson(response, { type: 'error', error: { type: 'invalid_request_error', message: fault } }, 400)
      return
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.end(events.map(eventText).join(''))
  })
  const extra = { thinking: { type: 'enabled', budget_tokens: 1024 } }
  const nodes = await converse(server.url, { api: 'messages', stream: true, extra })
  expect(nodes[1]?.message).toMatchObject({ tool_calls: [{ function: { arguments: written } }] })
  const [, sent] = server.requests.map(({ body }) => (JSON.parse(body) as MessagesBody).messages[1]?.content)
  expect(sent).toEqual([calling[0], calling[1], { ...calling[3], input: JSON.parse(input) }])
  expect(server.requests[1]?.body).toContain(`"input":${input}`)
})

test('signed thinking is not sent to another model, or if reasoning is not to be sent', async () => {
  await using server = await ScriptedServer.start(anthropic)
  const nodes = await converse(server.url, { api: 'messages', extra: {} })
  await converse(server.url, { api: 'messages', name: 'other', extra: {}, journalled: journalOf(nodes) })
  await converse(server.url, { api: 'messages', sendReasoning: false, extra: {} })
  expect(server.requests.map(({ body }) => body.includes('signed'))).toEqual([false, true, false, false, false])
})

test.each(['messages', 'responses', 'chat'] as const)(
  'signed reasoning is not sent to a judge that reads the conversation (%s)',
  async (api) => {
    const extra_content = { google: { thought_signature: 'signed' } }
    const call = { id: 'c1', type: 'function', function: { name: 'look', arguments: '{}' }, extra_content }
    const replies = {
      messages: messagesReply(calling),
      responses: {
        status: 'completed',
        output: [
          { type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: 'signed' },
          { type: 'function_call', call_id: 'c1', name: 'look', arguments: '{}' },
        ],
      },
      chat: { choices: [{ index: 0, message: { content: null, tool_calls: [call] }, finish_reason: 'tool_calls' }] },
    }
    await using server = await ScriptedServer.start((response) => sendJson(response, replies[api]))
    const nodes = await converse(server.url, { api, extra: {} })
    await using judge = openBackend(server.url, { api, name: 'judge' })
    await judge.send(ask({ messages: nodes.map(({ message }) => message) }))
    expect(server.requests.map(({ body }) => body.includes('signed'))).toEqual([false, true, false])
  },
)

test('encrypted reasoning is sent back with its items, also after a resume', async () => {
  const reasoning = { type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: 'signed' }
  const call = { type: 'function_call', id: 'fc_1', call_id: 'c1', name: 'look', arguments: '{}', status: 'completed' }
  await using server = await ScriptedServer.start((response) => {
    sendJson(response, { status: 'completed', output: [reasoning, call] })
  })
  const setting = { api: 'responses', extra: { include: ['reasoning.encrypted_content'] } } as const
  const nodes = await converse(server.url, setting)
  await converse(server.url, { ...setting, journalled: journalOf(nodes) })
  const inputs = server.requests.map(({ body }) => (JSON.parse(body) as { readonly input: readonly unknown[] }).input)
  const output = { type: 'function_call_output', call_id: 'c1', output: 'here' }
  expect(inputs.slice(1)).toEqual(Array.from({ length: 2 }, () => [question, reasoning, call, output]))
})

test.each([false, true])('the signature of a Gemini call is sent back with the call (stream: %s)', async (stream) => {
  const call = (id: string, more: object = {}) => ({
    id,
    type: 'function',
    function: { name: 'look', arguments: '{}' },
    ...more,
  })
  const signed = { extra_content: { google: { thought_signature: 'signed' } } }
  const calls = [call('c1', signed), call('c2')]
  await using server = await ScriptedServer.start((response) => {
    const message = { role: 'assistant', content: null, tool_calls: calls }
    if (!stream) {
      sendJson(response, { choices: [{ index: 0, message, finish_reason: 'tool_calls' }] })
      return
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    for (const piece of calls) response.write(chatChunk({ tool_calls: [{ index: 0, ...piece }] }))
    response.end(chatChunk({}, 'tool_calls'))
  })
  const nodes = await converse(server.url, { stream, extra: {} })
  await converse(server.url, { stream, extra: {}, journalled: journalOf(nodes) })
  expect(nodes[1]?.message).toEqual({ role: 'assistant', content: null, tool_calls: [call('c1'), call('c2')] })
  const sent = server.requests.map(
    ({ body }) => (JSON.parse(body) as { readonly messages: readonly unknown[] }).messages,
  )
  expect(sent[1]).toEqual([question, { role: 'assistant', content: null, tool_calls: calls }, answer])
  expect(sent[2]).toEqual(sent[1])
})

test('a reasoning item without encrypted content is not sent back', async () => {
  const hidden = { type: 'reasoning', id: 'rs_1', summary: [{ type: 'summary_text', text: 'hm' }] }
  const shown = { type: 'reasoning', id: 'rs_2', summary: [], encrypted_content: 'signed' }
  const call = { type: 'function_call', id: 'fc_1', call_id: 'c1', name: 'look', arguments: '{}' }
  await using server = await ScriptedServer.start((response) => {
    sendJson(response, { status: 'completed', output: [hidden, shown, call] })
  })
  const nodes = await converse(server.url, { api: 'responses', extra: {} })
  expect(server.requests[1]?.body).not.toContain('rs_1')
  expect(nodes[1]?.call).not.toHaveProperty('original')
})
