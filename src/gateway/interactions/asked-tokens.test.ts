import { afterAll, beforeAll, expect, test } from 'vitest'
import { SimulatorServer } from '../../simulator/index.ts'
import { admin, OpenGateway } from '../_testing/open-gateway.ts'

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

test.each(asked)('the simulator in process says of tokens what it says over HTTP: %j', async (fields) => {
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
