import { expect, test } from 'vitest'
import { SimulatorServer } from '../../src/simulator/index.ts'
import { TestGateway } from '../support/gateway/test-gateway.ts'

test('a conversation with two system messages is exact, whichever API the config of the model names', async () => {
  await using simulator = await SimulatorServer.start({ tokens: 'lossy' })
  const backends = [{ url: simulator.url }]
  await using gateway = await TestGateway.start({
    models: [{ name: 'sim', api: 'messages', tokens: 'exact', backends }],
  })
  const { id, key } = await gateway.startSession()
  const messages: unknown[] = [
    { role: 'system', content: 'Be kind.' },
    { role: 'developer', content: 'Be brief.' },
    { role: 'user', content: 'Hello.' },
  ]
  for (let turn = 0; turn < 2; turn += 1) {
    const answer = await gateway.ask('/v1/chat/completions', { body: { model: 'sim', messages }, key })
    expect(answer.status, answer.text).toBe(200)
    const { choices } = JSON.parse(answer.text) as { choices: readonly { message: unknown }[] }
    messages.push(choices[0]?.message, { role: 'user', content: 'Go on.' })
  }
  const exported = await gateway.ask(`/v1/export?session=${id}&rows=merged`, { method: 'GET' })
  const end = exported.text.trimEnd().split('\n').at(-1) ?? ''
  expect(JSON.parse(end)).toMatchObject({ kind: 'end', rows: 1, laterTurns: 1, driftedTurns: 0 })
})
