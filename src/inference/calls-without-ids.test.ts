import { expect, test } from 'vitest'
import type { Message, MessageNode } from '../schema/index.ts'
import { messagesEvents, messagesReply, type Block } from '../../test/support/inference/messages-server.ts'
import { openBackend } from '../../test/support/inference/open-backend.ts'
import { chatChunk, ScriptedServer, sendJson } from '../../test/support/inference/scripted-server.ts'
import { modelConfigSchema } from './config.ts'
import { Model } from './model/model.ts'
import { Session } from './session.ts'

const called = { name: 'look', arguments: '{}' }
const item = { type: 'function_call', ...called }
const blocks: Block[] = [
  { type: 'tool_use', id: '', name: 'look', input: {} },
  { type: 'tool_use', id: '', name: 'look', input: {} },
]
const calls = [
  { index: 0, type: 'function', function: called },
  { index: 1, type: 'function', function: called },
]
const response = { status: 'completed', output: [item, item] }

const replies = {
  chat: {
    whole: { choices: [{ message: { content: null, tool_calls: calls }, finish_reason: 'tool_calls' }] },
    events: [chatChunk({ tool_calls: calls }, 'tool_calls')],
  },
  messages: {
    whole: messagesReply(blocks),
    events: messagesEvents(blocks).map((event) => `data: ${JSON.stringify(event)}\n\n`),
  },
  responses: {
    whole: response,
    events: [`data: ${JSON.stringify({ type: 'response.completed', response })}\n\n`],
  },
} as const

/** The ids of the calls of three turns. For the last one, something else is sent in place of what was said. */
async function idsOf(api: keyof typeof replies, stream: boolean): Promise<string[]> {
  await using server = await ScriptedServer.start((answer) => {
    const { whole, events } = replies[api]
    if (!stream) sendJson(answer, whole)
    else answer.writeHead(200, { 'content-type': 'text/event-stream' }).end(events.join(''))
  })
  await using backend = openBackend(server.url, { api, stream })
  await using model = new Model(modelConfigSchema.parse({ name: 'm', maxTries: 1 }), [backend])
  const nodes: MessageNode[] = []
  const recorder = {
    node: (node: MessageNode) => void nodes.push(node),
    synced: () => undefined,
    version: () => undefined,
  }
  const session = new Session({ id: 's', model, recorder })
  const question: Message = { role: 'user', content: 'where?' }
  session.append(question)
  const ids: string[] = []
  for (const messages of [undefined, undefined, [question]]) {
    const turn = { tools: [], sampling: {}, captureTokens: false, ...(messages && { messages }) }
    const { message } = await session.turn(turn, { signal: new AbortController().signal })
    for (const { id } of message.tool_calls ?? []) {
      ids.push(id)
      session.append({ role: 'tool', tool_call_id: id, content: 'here' })
    }
  }
  return ids
}

test.for([
  ['chat', false],
  ['chat', true],
  ['messages', false],
  ['messages', true],
  ['responses', false],
  ['responses', true],
] as const)('calls without ids get ids unique in a conversation: %s, streamed: %s', async ([api, stream]) => {
  expect(await idsOf(api, stream)).toEqual(['call_0', 'call_1', 'call_2', 'call_3', 'call_4', 'call_5'])
})
