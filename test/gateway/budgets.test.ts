import { expect, test } from 'vitest'
import { admin, OpenGateway } from '../support/gateway/open-gateway.ts'
import { beginEvents, tokenChunk } from '../support/gateway/token-chunks.ts'
import { temporaryFolder } from '../support/store/fixtures.ts'
import { chatReply, ScriptedServer, sendJson } from '../support/inference/scripted-server.ts'

const body = { model: 'm', messages: [{ role: 'user', content: 'hello' }] }
/** A dollar for each token that is sampled. */
const price = { input: 0, output: 1_000_000 }

function over(server: ScriptedServer, folder?: string): Promise<OpenGateway> {
  const models = [{ name: 'm', maxTries: 1, price, backends: [{ url: server.url }] }]
  return OpenGateway.open({ models, ...(folder !== undefined && { folder }) })
}

test('a request counts against the budget if its client disconnects, also after a restart', async () => {
  using folder = temporaryFolder()
  await using server = await ScriptedServer.start(() => {})
  let caller
  {
    await using open = await over(server, folder.path)
    const session = await open.session({ limits: { maxRequests: 2 } })
    caller = session.caller
    for (const count of [1, 2]) {
      const { client, done } = open.send(caller, body)
      await server.received(count)
      client.leave()
      await done
    }
    expect((await open.nodes(session.id)).map(({ discarded }) => discarded?.why)).toEqual([
      undefined,
      'client_gone',
      'client_gone',
    ])
    expect((await open.ask(caller, body)).document).toMatchObject({ error: { code: 'insufficient_quota' } })
  }
  await using open = await over(server, folder.path)
  expect((await open.ask(caller, body)).status).toBe(429)
})

test('a failed request does not count against the budget', async () => {
  await using server = await ScriptedServer.start((response) => {
    response.writeHead(500).end('{}')
  })
  await using open = await over(server)
  const { id, caller } = await open.session({ limits: { maxRequests: 1 } })
  expect((await open.ask(caller, body)).status).toBe(500)
  expect((await open.gateway.session(admin, id)).used.requests).toBe(0)
})

test.each([
  { name: 'as it came', token: 5, tokens: 1 },
  { name: 'by its text where no ids came', token: undefined, tokens: 3 },
])('tokens sampled before the client disconnected are counted and priced, $name', async ({ token, tokens }) => {
  await using server = await ScriptedServer.start((response) => {
    beginEvents(response)
    response.write(tokenChunk('ten chars!', token === undefined ? {} : { token, promptIds: [1, 2] }))
  })
  await using open = await over(server)
  const { id, caller } = await open.session({ limits: { maxCost: 1 } })
  const { client, done } = open.send(caller, { ...body, stream: true })
  await client.received(1)
  client.leave()
  await done
  expect((await open.gateway.session(admin, id)).used).toMatchObject({ requests: 1, tokens, cost: tokens })
  expect((await open.ask(caller, body)).status).toBe(429)
})

test('the whole prompt is estimated if the server does not report it, also for a continued reply', async () => {
  await using server = await ScriptedServer.start((response) =>
    sendJson(response, chatReply('hello', { usage: undefined })),
  )
  await using open = await over(server)
  const { id, caller } = await open.session()
  const first = await open.ask(caller, { model: 'm', input: 'a long story '.repeat(100) }, { api: 'responses' })
  const named = { model: 'm', input: 'and then?', previous_response_id: first.document['id'] }
  await open.ask(caller, named, { api: 'responses' })
  const [told = 0, continued = 0] = (await open.nodes(id)).flatMap(({ call }) => call?.usage.input ?? [])
  expect(told).toBeGreaterThan(100)
  expect(continued).toBeGreaterThan(told)
})

test('a session with a cost limit refuses a model without a price', async () => {
  await using server = await ScriptedServer.start(() => {})
  await using open = await OpenGateway.open({
    models: [{ name: 'm', backends: [{ url: server.url }], upstreamName: 'our-own' }],
  })
  const { caller } = await open.session({ limits: { maxCost: 1 } })
  const refused = await open.ask(caller, body)
  expect(refused.status).toBe(400)
  expect(refused.text).toContain('model m has no price')
  expect(server.requests).toEqual([])
})

test('a lost sample records the reason it was discarded', async () => {
  await using server = await ScriptedServer.start((response) => {
    beginEvents(response)
    response.write(tokenChunk('Hel', { token: 1 }))
  })
  using folder = temporaryFolder()
  let session
  {
    await using open = await over(server, folder.path)
    session = await open.session()
    const ended = await open.session()
    const given = [ended, session].map(({ caller }) => open.send(caller, { ...body, stream: true }))
    await Promise.all(given.map(({ client }) => client.received(1)))
    await open.gateway.endSession(admin, ended.id)
    expect((await open.nodes(ended.id))[1]?.discarded?.why).toBe('session_ended')
    await open.gateway.close()
  }
  await using next = await over(server, folder.path)
  expect((await next.nodes(session.id))[1]?.discarded?.why).toBe('shutdown')
})
