import { describe, expect, test } from 'vitest'
import { SimulatorServer } from '../../src/simulator/index.ts'
import { saidIn, Talk } from './_talk.ts'
import { TestGateway } from './_test-gateway.ts'
import { emittedIn, emittedTruth, expectMerged, mergedRowsOf, recordedTruth, samplesOf } from './_truth.ts'
import { pixel } from './_voice.ts'
import { apiNames, voices } from './_voices.ts'

const turns = 20
/** From here on prompts are so long that their tokens are read in another way than those of short ones. */
const longTurn = 12
const longText = Array.from({ length: 3000 }, (_, index) => `word${index}`).join(' ')

const kinds = apiNames.flatMap((api) =>
  (['whole', 'stream'] as const).flatMap((form) =>
    (['vllm', 'sglang'] as const).map((imitate) => ({ api, form, imitate })),
  ),
)

describe.concurrent.each(kinds)('$api, $form, from $imitate', ({ api, form, imitate }) => {
  test('a conversation of 20 turns is exported exactly as it was emitted', async () => {
    await using simulator = await SimulatorServer.start({
      imitate,
      recordEmitted: 100,
      reasoning: true,
      routedExperts: '3x2',
      weightVersion: 'v0',
    })
    const backends = [{ url: simulator.url, engine: imitate }]
    await using gateway = await TestGateway.start({ models: [{ name: 'sim', backends }] })
    const session = await gateway.startSession()
    const talk = new Talk(gateway, session, voices[api], { system: 'Look every word up.', tools: true })
    const heard = []
    for (let turn = 0; turn < turns; turn += 1) {
      if (talk.openCalls.length > 0) talk.results([`entry ${turn}: naïve 日本語 🙂, "quoted" and \\ more`])
      else talk.user(turn === longTurn ? longText : `What is word ${turn}?`, turn % 4 === 0 ? pixel : undefined)
      if (turn % 3 === 1) simulator.simulator.change({ weightVersion: `v${turn}` })
      // Now and then the weights change while a reply is on its way.
      const changes = turn % 7 === 5
      simulator.simulator.change({ tokensPerSecond: changes ? 100 : 0 })
      let pieces = 0
      const reply = await talk.ask({
        stream: form === 'stream',
        onPiece: () => {
          pieces += 1
          if (changes && pieces === 4) simulator.simulator.change({ weightVersion: `v${turn}b` })
        },
      })
      talk.take(reply)
      heard.push(reply)
    }
    await gateway.ask(`/v1/sessions/${session.id}/end`, { method: 'POST' })

    const emitted = await emittedIn(simulator, session.id)
    const rows = await samplesOf(gateway, session.id)
    expect(emitted).toHaveLength(turns)
    expect(rows.map(recordedTruth)).toEqual(emitted.map(emittedTruth))
    expect(rows.every(({ routedExperts }) => routedExperts?.length)).toBe(true)
    // A whole reply has one version, and SGLang's have tokens only if they are whole.
    if (form === 'stream' && imitate === 'vllm')
      expect(rows.some(({ versions }) => (versions?.length ?? 0) > 1)).toBe(true)
    // Each follows the one before, and together they say what the client did and heard.
    expect(rows.map(({ interaction }) => interaction)).toEqual(heard.map(({ id }) => id))
    expect(rows.map(({ parentInteraction }) => parentInteraction)).toEqual(
      [null, ...heard.map(({ id }) => id)].slice(0, -1),
    )
    expect(rows.flatMap(({ messages }) => messages.map(saidIn))).toEqual(talk.said)
    expect(heard.every(({ reasoning }) => reasoning !== '')).toBe(true)
    const [merged, ...more] = await mergedRowsOf(gateway, session.id)
    expect(more).toEqual([])
    if (merged) expectMerged(merged, emitted)
    expect(merged?.samples.map(({ interaction }) => interaction)).toEqual(heard.map(({ id }) => id))
    expect((await gateway.ask(`/v1/sessions/${session.id}`)).body).toMatchObject({ interactions: turns, alarms: [] })
  })
})

test('a conversation that goes on by the ids of its replies is one conversation', async () => {
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
  expect(rows.map(recordedTruth)).toEqual(emitted.map(emittedTruth))
  const [merged, ...more] = await mergedRowsOf(gateway, session.id)
  expect(more).toEqual([])
  if (merged) expectMerged(merged, emitted)
})

test('a client of SGLang sees none of the tokens that were recorded', async () => {
  await using simulator = await SimulatorServer.start({ imitate: 'sglang', recordEmitted: 10, routedExperts: '2x2' })
  const backends = [{ url: simulator.url, engine: 'sglang' as const }]
  await using gateway = await TestGateway.start({ models: [{ name: 'sim', backends }] })
  const session = await gateway.startSession()
  for (const stream of [false, true]) {
    const talk = new Talk(gateway, session, voices.chat)
    talk.user('Say something.')
    const { body } = await talk.send({ stream })
    expect(await body.text()).not.toMatch(/meta_info|sgl_ext|token_ids|"logprob"/)
  }
  expect((await samplesOf(gateway, session.id)).map(recordedTruth)).toEqual(
    (await emittedIn(simulator, session.id)).map(emittedTruth),
  )
})
