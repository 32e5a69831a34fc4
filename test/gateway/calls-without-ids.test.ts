import { expect, test } from 'vitest'
import { OpenGateway } from '../support/gateway/open-gateway.ts'
import { chatReply, ScriptedServer, sendJson } from '../support/inference/scripted-server.ts'

const call = (name: string, id: string) => ({ id, type: 'function', function: { name, arguments: '{}' } })

test('a conversation is recorded as one branch if the server gives tool calls no ids', async () => {
  const message = { role: 'assistant', content: null, tool_calls: [call('f', ''), call('g', '')] }
  await using server = await ScriptedServer.start((response, { body }) => {
    const { messages } = JSON.parse(body) as { readonly messages: readonly object[] }
    const choice = { index: 0, message, finish_reason: 'tool_calls' }
    sendJson(response, messages.length < 7 ? { choices: [choice] } : chatReply('done'))
  })
  await using open = await OpenGateway.open({ models: [{ name: 'm', maxTries: 1, backends: [{ url: server.url }] }] })
  const { id, caller } = await open.session()
  const messages: object[] = [{ role: 'user', content: 'go' }]
  await open.ask(caller, JSON.stringify({ model: 'm', messages }))
  const results = ['one', 'two'].map((content) => ({ role: 'tool', tool_call_id: '', content }))
  messages.push(message, ...results)
  await open.ask(caller, JSON.stringify({ model: 'm', messages }))
  messages.push(message, ...results)
  const { document } = await open.ask(caller, JSON.stringify({ model: 'm', messages }))
  expect(document['choices']).toMatchObject([{ message: { content: 'done' } }])
  const nodes = await open.nodes(id)
  expect(nodes.map(({ seq, parent, sampled }) => [seq, parent, sampled])).toEqual([
    [0, null, false],
    [1, 0, true],
    [2, 1, false],
    [3, 2, false],
    [4, 3, true],
    [5, 4, false],
    [6, 5, false],
    [7, 6, true],
  ])
  expect(nodes.map(({ message: said }) => ('tool_call_id' in said ? said.tool_call_id : ''))).toEqual([
    '',
    '',
    'call_0',
    'call_1',
    '',
    'call_2',
    'call_3',
    '',
  ])
  // The server gets what it knows.
  const sent = JSON.parse(server.requests.at(-1)?.body ?? '') as { readonly messages: unknown }
  expect(sent.messages).toEqual(messages)
})
