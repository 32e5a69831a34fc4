import { expect, test } from 'vitest'
import { SimulatorServer } from '../../simulator/index.ts'
import { admin, OpenGateway } from '../_testing/open-gateway.ts'

/** What names one reply and no other. */
const ownMarks = /"(id|created)":("[^"]*"|\d+)/g

const asked = [{ logprobs: true }, { logprobs: true, top_logprobs: 2 }, { return_token_ids: true }, {}].flatMap(
  (fields) => [fields, { ...fields, stream: true }],
)

test.each(asked)('the simulator in process says of tokens what it says over HTTP: %j', async (fields) => {
  await using server = await SimulatorServer.start({})
  const backends = [{ simulator: {} }, { backends: [{ url: server.url }] }]
  const said: unknown[] = []
  for (const backend of backends) {
    await using gateway = await OpenGateway.open({ models: [{ name: 'sim', ...backend }] })
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
