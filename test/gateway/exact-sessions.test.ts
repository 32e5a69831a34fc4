import { temporaryRuns } from 'millrace/testing'
import { describe, expect, test } from 'vitest'
import { seededRandom } from '../../src/kit/index.ts'
import { SimulatorServer } from '../../src/simulator/index.ts'
import { apiClients, apiNames, pixel } from '../support/gateway/api-clients.ts'
import { mergedRowsOf } from '../support/gateway/emitted-tokens.ts'
import { Talk } from '../support/gateway/scripted-conversation.ts'
import { TestGateway } from '../support/gateway/test-gateway.ts'
import { respelled } from '../support/tokens/respelled.ts'
import { noDifferences, TokenLedger, type TrainingRow } from '../support/tokens/token-ledger.ts'

const startSimulator = (): Promise<SimulatorServer> =>
  SimulatorServer.start({ tokens: 'lossy', reasoning: true, recordEmitted: 1000, seed: 'random' })

function startGateway(
  simulator: SimulatorServer,
  options: Parameters<typeof TestGateway.start>[0] = {},
): Promise<TestGateway> {
  const models = [{ name: 'sim', backends: [{ url: simulator.url }], tokens: 'exact' as const }]
  return TestGateway.start({ models, ...options })
}

/** One row, with all that was sampled in the session. */
async function expectOneRow(gateway: TestGateway, simulator: SimulatorServer, session: string): Promise<void> {
  const rows = await mergedRowsOf(gateway, session)
  expect(rows.map(({ splitAt }) => splitAt)).toEqual([null])
  const found = noDifferences()
  new TokenLedger(simulator.simulator.emitted(session).replies).compareRows(rows as unknown as TrainingRow[], found)
  expect(found).toMatchObject({ unknownReplies: 0, missingReplies: 0, masks: 0, logprobs: 0, versions: 0 })
}

async function goOn(talk: Talk, turns: number): Promise<void> {
  const random = seededRandom(turns)
  for (let turn = 0; turn < turns; turn += 1) {
    if (talk.openCalls.length > 0) talk.results(talk.openCalls.map(() => `found ${turn}`))
    else talk.user(`What is word ${turn}?`)
    talk.take(respelled(await talk.ask({ stream: turn % 2 === 1 }), talk.apiClient.api, random))
  }
}

describe.each(apiNames)('a session with exact tokens, in %s', (api) => {
  test('goes on from the tokens on disk after a restart, and if its tokens are no longer in memory', async () => {
    await using runs = await temporaryRuns()
    await using simulator = await startSimulator()
    const run = { root: runs.root, name: 'gateway' }
    let session
    let talk
    {
      await using gateway = await startGateway(simulator, { run })
      session = await gateway.startSession()
      talk = new Talk(gateway, session, apiClients[api], { tools: true })
      await goOn(talk, 5)
    }
    // Nothing of a session is remembered that no request uses.
    await using gateway = await startGateway(simulator, { run, bounds: { maxRemembered: 0 } })
    await goOn(talk.movedTo(gateway), 6)
    await expectOneRow(gateway, simulator, session.id)
  })

  test('refuses what only the engine can render, by its name', async () => {
    await using simulator = await startSimulator()
    await using gateway = await startGateway(simulator)
    const session = await gateway.startSession()
    const talk = new Talk(gateway, session, apiClients[api])
    talk.user('What is this?', pixel)
    await expect(talk.ask({ stream: false })).rejects.toThrow(/^400 .*only the engine knows its tokens/)
  })
})

test('a reply that is continued by its name keeps its tokens', async () => {
  await using simulator = await startSimulator()
  await using gateway = await startGateway(simulator)
  const session = await gateway.startSession()
  let previous: string | undefined
  for (let turn = 0; turn < 5; turn += 1) {
    const { status, body } = await gateway.ask('/v1/responses', {
      key: session.key,
      body: { model: 'sim', input: `What is word ${turn}?`, ...(previous && { previous_response_id: previous }) },
    })
    expect(status).toBe(200)
    previous = String(body['id'])
  }
  await expectOneRow(gateway, simulator, session.id)
})

test('a forced call and a template of the client are refused', async () => {
  await using simulator = await startSimulator()
  await using gateway = await startGateway(simulator)
  const session = await gateway.startSession()
  const messages = [{ role: 'user', content: 'Go.' }]
  const tools = [{ type: 'function', function: { name: 'go', parameters: { type: 'object' } } }]
  const ask = (fields: object) =>
    gateway.ask('/v1/chat/completions', { key: session.key, body: { model: 'sim', messages, ...fields } })
  for (const [fields, param] of [
    [{ tools, tool_choice: 'required' }, 'tool_choice'],
    [{ chat_template: '{{ messages }}' }, 'chat_template'],
  ] as const) {
    expect(await ask(fields)).toMatchObject({ status: 400, body: { error: { param } } })
  }
  expect(await ask({ logprobs: true, max_tokens: 5 })).toMatchObject({ status: 200 })
})

test('tokens of a request are counted as its prompt has them', async () => {
  await using simulator = await startSimulator()
  await using gateway = await startGateway(simulator)
  const session = await gateway.startSession()
  const body = { model: 'sim', messages: [{ role: 'user', content: 'How long is this?' }] }
  const counted = await gateway.ask('/v1/messages/count_tokens', { key: session.key, body })
  const answered = await gateway.ask('/v1/messages', { key: session.key, body: { ...body, max_tokens: 50 } })
  expect(counted.body['input_tokens']).toBe(simulator.simulator.emitted().replies.at(-1)?.promptIds.length)
  expect(answered.body['usage']).toMatchObject({ input_tokens: counted.body['input_tokens'] })
})

test('a stream outside of any session is kept alive, and then comes with all its events', async () => {
  await using simulator = await SimulatorServer.start({ tokens: 'lossy', ttftMs: 200 })
  await using gateway = await startGateway(simulator, { bounds: { beatMs: 10 } })
  const body = { model: 'sim', stream: true, messages: [{ role: 'user', content: 'What is 6 * 7?' }] }
  const { status, text } = await gateway.ask('/v1/chat/completions', { body })
  expect(status).toBe(200)
  expect(text).toContain(': on its way')
  expect(text).toMatch(/42[^]*data: \[DONE\]/)
})

test('several choices are siblings that go on from the same tokens', async () => {
  await using simulator = await startSimulator()
  await using gateway = await startGateway(simulator)
  const session = await gateway.startSession()
  const talk = new Talk(gateway, session, apiClients.chat)
  await goOn(talk, 2)
  talk.user('And now?')
  const { status, body } = await gateway.ask('/v1/chat/completions', {
    key: session.key,
    body: { ...talk.body({ stream: false }), n: 3 },
  })
  expect(status).toBe(200)
  expect(body['choices']).toHaveLength(3)
  const rows = await mergedRowsOf(gateway, session.id)
  expect(rows.map(({ splitAt }) => splitAt)).toEqual([null, null, null])
  const found = noDifferences()
  const { replies } = simulator.simulator.emitted(session.id)
  new TokenLedger(replies).compareRows(rows as unknown as TrainingRow[], found)
  expect(found).toMatchObject({ replies: 5, unknownReplies: 0, missingReplies: 0, masks: 0, logprobs: 0 })
})
