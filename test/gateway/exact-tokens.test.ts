import { describe, expect, test } from 'vitest'
import type { Json } from '../../src/schema/index.ts'
import { SimulatorServer } from '../../src/simulator/index.ts'
import { saidIn, Talk } from '../support/gateway/scripted-conversation.ts'
import { TestGateway } from '../support/gateway/test-gateway.ts'
import {
  emittedIn,
  emittedSample,
  expectMerged,
  mergedRowsOf,
  recordedSample,
  samplesOf,
} from '../support/gateway/emitted-tokens.ts'
import { apiClients, apiNames, pixel } from '../support/gateway/api-clients.ts'

const turns = 20
/** From here on prompts are so long that their tokens are read in another way than those of short ones. */
const longTurn = 12
const longText = Array.from({ length: 3000 }, (_, index) => `word${index}`).join(' ')

const kinds = apiNames.flatMap((api) =>
  (['whole', 'stream'] as const).flatMap((form) =>
    (['millrace', 'sglang'] as const).map((imitate) => ({ api, form, imitate })),
  ),
)

describe.concurrent.each(kinds)('$api, $form, from $imitate', ({ api, form, imitate }) => {
  test('a conversation of 20 turns is exported with exactly the emitted tokens', async () => {
    await using simulator = await SimulatorServer.start({
      imitate,
      recordEmitted: 100,
      reasoning: true,
      routedExperts: '3x2',
      weightVersion: 'v0',
    })
    const engine: 'sglang' | 'vllm' = imitate === 'sglang' ? imitate : 'vllm'
    const backends = [{ url: simulator.url, engine }]
    await using gateway = await TestGateway.start({ models: [{ name: 'sim', backends }] })
    const session = await gateway.startSession()
    const talk = new Talk(gateway, session, apiClients[api], { system: 'Look every word up.', tools: true })
    const received = []
    for (let turn = 0; turn < turns; turn += 1) {
      if (talk.openCalls.length > 0) talk.results([`entry ${turn}: naïve 日本語 🙂, "quoted" and \\ more`])
      else talk.user(turn === longTurn ? longText : `What is word ${turn}?`, turn % 4 === 0 ? pixel : undefined)
      if (turn % 3 === 1) simulator.simulator.change({ weightVersion: `v${turn}` })
      // Now and then the weights change while a reply is on its way.
      const changes = turn % 7 === 5
      simulator.simulator.change({ tokensPerSecond: changes ? 40 : 0 })
      let pieces = 0
      const reply = await talk.ask({
        stream: form === 'stream',
        onPiece: () => {
          pieces += 1
          if (changes && pieces === 2) simulator.simulator.change({ weightVersion: `v${turn}b` })
        },
      })
      talk.take(reply)
      received.push(reply)
    }
    await gateway.ask(`/v1/sessions/${session.id}/end`, { method: 'POST' })

    const emitted = await emittedIn(simulator, session.id)
    const rows = await samplesOf(gateway, session.id)
    expect(emitted).toHaveLength(turns)
    expect(rows.map(recordedSample)).toEqual(emitted.map(emittedSample))
    expect(rows.every(({ routedExperts }) => routedExperts?.length)).toBe(true)
    // A whole reply has one version, and SGLang's have tokens only if they are whole.
    if (form === 'stream' && imitate === 'millrace')
      expect(rows.some(({ versions }) => (versions?.length ?? 0) > 1)).toBe(true)
    // Each follows the one before, and together they say what the client did and heard.
    expect(rows.map(({ interaction }) => interaction)).toEqual(received.map(({ id }) => id))
    expect(rows.map(({ parentInteraction }) => parentInteraction)).toEqual(
      [null, ...received.map(({ id }) => id)].slice(0, -1),
    )
    expect(rows.flatMap(({ messages }) => messages.map(saidIn))).toEqual(talk.said)
    expect(received.every(({ reasoning }) => reasoning !== '')).toBe(true)
    const [merged, ...more] = await mergedRowsOf(gateway, session.id)
    expect(more).toEqual([])
    if (merged) expectMerged(merged, emitted)
    expect(merged?.samples.map(({ interaction }) => interaction)).toEqual(received.map(({ id }) => id))
    expect((await gateway.ask(`/v1/sessions/${session.id}`)).body).toMatchObject({ interactions: turns, alarms: [] })
  })
})

test.each(apiNames)('a client of %s that reformats tool arguments gets one row', async (api) => {
  await using simulator = await SimulatorServer.start({ recordEmitted: 100 })
  await using gateway = await TestGateway.start({ models: [{ name: 'sim', backends: [{ url: simulator.url }] }] })
  const session = await gateway.startSession()
  const talk = new Talk(gateway, session, apiClients[api], { system: 'Look every word up.', tools: true })
  // Long enough that the body of a Chat request is recognised by its bytes.
  talk.user(`Look these up: ${longText}`)
  let calls = 0
  for (let turn = 0; turn < 6; turn += 1) {
    const received = await talk.ask({ stream: turn % 2 === 1 })
    calls += received.calls.length
    talk.take({ ...received, items: received.items.map(respelled) })
    if (received.calls.length > 0) talk.results([`entry ${turn}`])
    else talk.user(`What is word ${turn}?`)
  }
  expect(calls).toBeGreaterThan(2)
  expect(JSON.stringify(talk.body({ stream: false }))).toMatch(/language[\\": ]+.{1,12}word[\\": ]+/)
  const emitted = await emittedIn(simulator, session.id)
  const [merged, ...more] = await mergedRowsOf(gateway, session.id)
  expect(more).toHaveLength(0)
  if (merged) expectMerged(merged, emitted)
})

/** An item as a client writes it that parses arguments and sorts their keys: LangChain puts spaces in, Go sorts. */
function respelled(item: Json): Json {
  if (typeof item !== 'object' || item === null) return item
  if (Array.isArray(item)) return item.map(respelled)
  const entries = Object.entries(item).map(([name, value]): [string, Json] => {
    if (name === 'arguments' && typeof value === 'string') return [name, JSON.stringify(sorted(value), null, 1)]
    if (name === 'input') return [name, sorted(JSON.stringify(value))]
    return [name, respelled(value ?? null)]
  })
  return Object.fromEntries(entries)
}

function sorted(written: string): Json {
  const entries = Object.entries(JSON.parse(written) as Record<string, Json>)
  return Object.fromEntries(entries.toSorted(([one], [other]) => (one < other ? -1 : 1)))
}

test('a conversation continued by reply ids is one conversation', async () => {
  await using simulator = await SimulatorServer.start({ recordEmitted: 100, reasoning: true })
  await using gateway = await TestGateway.start({ models: [{ name: 'sim', backends: [{ url: simulator.url }] }] })
  const session = await gateway.startSession()
  let previous: string | undefined
  for (let turn = 0; turn < 6; turn += 1) {
    const { body } = await gateway.ask('/v1/responses', {
      key: session.key,
      body: { model: 'sim', input: `word ${turn}`, ...(previous !== undefined && { previous_response_id: previous }) },
    })
    previous = String(body['id'])
  }
  const emitted = await emittedIn(simulator, session.id)
  const rows = await samplesOf(gateway, session.id)
  expect(rows.map(recordedSample)).toEqual(emitted.map(emittedSample))
  const [merged, ...more] = await mergedRowsOf(gateway, session.id)
  expect(more).toEqual([])
  if (merged) expectMerged(merged, emitted)
})

test('an SGLang client sees none of the recorded tokens', async () => {
  await using simulator = await SimulatorServer.start({ imitate: 'sglang', recordEmitted: 10, routedExperts: '2x2' })
  const backends = [{ url: simulator.url, engine: 'sglang' as const }]
  await using gateway = await TestGateway.start({ models: [{ name: 'sim', backends }] })
  const session = await gateway.startSession()
  for (const stream of [false, true]) {
    const talk = new Talk(gateway, session, apiClients.chat)
    talk.user('Say something.')
    const { body } = await talk.send({ stream })
    expect(await body.text()).not.toMatch(/meta_info|sgl_ext|token_ids|"logprob"/)
  }
  expect((await samplesOf(gateway, session.id)).map(recordedSample)).toEqual(
    (await emittedIn(simulator, session.id)).map(emittedSample),
  )
})

test('a gateway does not start if the tokens of a model cannot be exact, and starts if its backend is away', async () => {
  await using plain = await SimulatorServer.start()
  const exact = (url: string) => ({
    models: [{ name: 'sim', backends: [{ url }], tokens: 'exact' as const, maxTries: 1 }],
  })
  await expect(TestGateway.start(exact(plain.url))).rejects.toMatchObject({ code: 'config_invalid' })
  const { url } = plain
  await plain[Symbol.asyncDispose]()
  await using gateway = await TestGateway.start(exact(url))
  expect((await gateway.ask('/health')).status).toBe(200)
})
