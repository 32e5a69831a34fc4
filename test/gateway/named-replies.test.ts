import { expect, test } from 'vitest'
import { OpenGateway } from '../support/gateway/open-gateway.ts'
import { beginEvents, tokenChunk } from '../support/gateway/token-chunks.ts'
import { temporaryFolder } from '../support/store/fixtures.ts'
import { chatReply, ScriptedServer, sendJson } from '../support/inference/scripted-server.ts'

const message = (id: string): object => ({
  id,
  type: 'message',
  status: 'completed',
  role: 'assistant',
  content: [{ type: 'output_text', text: 'Hello', annotations: [] }],
})

/** Always the same words, under another name each time, if the API has names. */
function serve(api: 'chat' | 'responses'): Promise<ScriptedServer> {
  let count = 0
  return ScriptedServer.start((response) => {
    count += 1
    const output = [message(`msg_theirs_${count}`)]
    const usage = { input_tokens: 1, output_tokens: 1 }
    const theirs = { id: `resp_theirs_${count}`, object: 'response', status: 'completed', output, usage }
    sendJson(response, api === 'chat' ? chatReply('Hello') : theirs)
  })
}

interface Reply {
  readonly id: string
  readonly output: readonly object[]
}

test.each(['chat', 'responses'] as const)(
  'a request continues the reply whose items it contains, also if another reply is equal (%s)',
  async (api) => {
    await using server = await serve(api)
    using folder = temporaryFolder()
    const models = [{ name: 'm', api, maxTries: 1, backends: [{ url: server.url }] }]
    const first = { model: 'm', input: [{ role: 'user', content: 'hi' }] }
    const goOn = ({ output }: Reply): object => ({
      ...first,
      input: [...first.input, ...output, { role: 'user', content: 'on' }],
    })
    const { id, caller, replies } = await (async () => {
      await using open = await OpenGateway.open({ models, folder: folder.path })
      const session = await open.session()
      const received: Reply[] = []
      for (let sample = 0; sample < 3; sample += 1) {
        const { document } = await open.ask(session.caller, { ...first, metadata: { sample } }, { api: 'responses' })
        received.push(document as unknown as Reply)
        const again = await open.ask(
          session.caller,
          { ...first, metadata: { sample } },
          { api: 'responses', retryCount: 1 },
        )
        expect(again.document['output']).toMatchObject(received.at(-1)?.output ?? [])
      }
      await open.ask(session.caller, goOn(received[1] as Reply), { api: 'responses' })
      return { ...session, replies: received }
    })()
    // The next process knows their names, too.
    await using open = await OpenGateway.open({ models, folder: folder.path })
    await open.ask(caller, goOn(replies[0] as Reply), { api: 'responses' })
    const nodes = await open.nodes(id)
    const said = nodes.filter(({ message: { content } }) => content === 'on')
    expect(said.map(({ parent }) => nodes[parent ?? -1]?.call?.replyId)).toEqual([replies[1]?.id, replies[0]?.id])
  },
)

test('a request that continues an incomplete reply is refused, and the error says why', async () => {
  await using server = await ScriptedServer.start((response) => {
    beginEvents(response)
    response.write(tokenChunk('Hel', { token: 1 }))
  })
  await using open = await OpenGateway.open({ models: [{ name: 'm', maxTries: 1, backends: [{ url: server.url }] }] })
  const { caller } = await open.session()
  const { client, done } = open.send(caller, { model: 'm', input: 'hi', stream: true }, { api: 'responses' })
  await client.received(1)
  const [{ response }] = client.events as [{ response: Reply }]
  client.leave()
  await done
  const more = { model: 'm', input: 'on', previous_response_id: response.id }
  const refused = await open.ask(caller, more, { api: 'responses' })
  expect(refused).toMatchObject({ status: 404, document: { error: { param: 'previous_response_id' } } })
  expect(refused.text).toContain(`reply ${response.id} did not end (client_gone)`)
})
