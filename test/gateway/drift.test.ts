import { temporaryRuns } from 'millrace/testing'
import { request } from 'undici'
import { expect, test } from 'vitest'
import { SimulatorServer } from '../../src/simulator/index.ts'
import { authorized, startGateway } from '../support/gateway/gateway-process.ts'
import { readJsonRows } from '../support/gateway/read-rows.ts'
import { Talk, type OpenToAsk } from '../support/gateway/scripted-conversation.ts'
import { TestGateway } from '../support/gateway/test-gateway.ts'
import { apiClients, apiNames, type Received } from '../support/gateway/api-clients.ts'

/** What a client sends back that keeps the text of a reply and drops its reasoning: the model then sees other tokens. */
function withoutReasoning(received: Received): Received {
  return { ...received, items: [{ role: 'assistant', content: received.text }] }
}

async function talk(talking: Talk, turns: number, taken: (received: Received) => Received): Promise<void> {
  for (let turn = 0; turn < turns; turn += 1) {
    talking.user(`What is word ${turn}?`)
    talking.take(taken(await talking.ask({ stream: turn % 2 === 1 })))
  }
}

async function laterTurns(gateway: TestGateway, tokens: string): Promise<number> {
  const { text } = await gateway.ask('/metrics')
  const found = text.split('\n').find((line) => line.startsWith(`${turnsMetric}{model="sim",tokens="${tokens}"}`))
  return Number(found?.split(' ').at(-1) ?? 0)
}

const turnsMetric = 'millrace_gateway_later_turns_total'

test('turns that do not begin with the previous tokens are counted, and reported ever more rarely', async () => {
  await using simulator = await SimulatorServer.start({ reasoning: true })
  const told: object[] = []
  await using gateway = await TestGateway.start({
    models: [{ name: 'sim', backends: [{ url: simulator.url }] }],
    onDrift: (drift) => told.push(drift),
  })
  const exact = await gateway.startSession()
  await talk(new Talk(gateway, exact, apiClients.chat), 4, (received) => received)
  expect([await laterTurns(gateway, 'exact'), await laterTurns(gateway, 'drifted')]).toEqual([3, 0])
  expect(told).toEqual([])
  const { id: session, key } = await gateway.startSession()
  await talk(new Talk(gateway, { key }, apiClients.chat), 13, withoutReasoning)
  expect([await laterTurns(gateway, 'exact'), await laterTurns(gateway, 'drifted')]).toEqual([3, 12])
  expect(told).toEqual([
    { model: 'sim', laterTurns: 4, driftedTurns: 1, session },
    { model: 'sim', laterTurns: 13, driftedTurns: 10, session },
  ])
  const { text } = await gateway.ask(`/v1/export?rows=merged`)
  expect(readJsonRows(Buffer.from(text)).at(-1)).toMatchObject({ rows: 14, laterTurns: 15, driftedTurns: 12 })
})

test.each(apiNames)('forks and repeated prompts are not drift, in %s', async (api) => {
  await using simulator = await SimulatorServer.start({ reasoning: true })
  await using gateway = await TestGateway.start({ models: [{ name: 'sim', backends: [{ url: simulator.url }] }] })
  const session = await gateway.startSession()
  const talking = new Talk(gateway, session, apiClients[api])
  await talk(talking, 2, (received) => received)
  talking.user('One way.')
  talking.take(await talking.ask({ stream: false }))
  talking.back(1)
  talking.take(await talking.ask({ stream: true }))
  talking.back(2)
  await talk(talking, 2, (received) => received)
  expect([await laterTurns(gateway, 'exact'), await laterTurns(gateway, 'drifted')]).toEqual([5, 0])
})

test('a session that is no longer in memory is not compared, but the export counts its drift', async () => {
  await using simulator = await SimulatorServer.start({ reasoning: true })
  const backends = [{ url: simulator.url }]
  await using gateway = await TestGateway.start({
    models: [{ name: 'sim', backends }],
    bounds: { maxRemembered: 0 },
  })
  const session = await gateway.startSession()
  await talk(new Talk(gateway, session, apiClients.chat), 4, withoutReasoning)
  expect([await laterTurns(gateway, 'exact'), await laterTurns(gateway, 'drifted')]).toEqual([0, 0])
  const { text } = await gateway.ask(`/v1/export?rows=merged`)
  expect(readJsonRows(Buffer.from(text)).at(-1)).toMatchObject({ laterTurns: 3, driftedTurns: 3 })
})

test('drift is logged as a warning', async () => {
  await using runs = await temporaryRuns()
  await using simulator = await SimulatorServer.start({ reasoning: true })
  await using gateway = await startGateway(runs.root, '-m', 'sim', '--backend', simulator.url)
  const asking: OpenToAsk = {
    open: (path, { method = 'POST', body, key }) =>
      request(`${gateway.url}${path}`, { method, headers: authorized(key), body: JSON.stringify(body) }),
  }
  const started = await asking.open('/v1/sessions', { body: {} })
  const { sessions } = (await started.body.json()) as { sessions: { id: string; key: string }[] }
  const [{ id, key } = { id: '', key: '' }] = sessions
  await talk(new Talk(asking, { key }, apiClients.chat), 4, withoutReasoning)
  gateway.running.process.kill('SIGTERM')
  const { stderr } = await gateway.running.ended
  const lines = stderr.split('\n').filter((line) => line.includes('drift'))
  expect(lines.map((line) => JSON.parse(line) as unknown)).toMatchObject([
    { level: 'warn', model: 'sim', session: id, laterTurns: 1, driftedTurns: 1 },
  ])
})
