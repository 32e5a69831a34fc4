import { expect, test } from 'vitest'
import { admin, OpenGateway } from '../support/gateway/open-gateway.ts'
import { AttemptRecorder } from '../../src/store/index.ts'
import { ScriptedBackend } from '../../src/testing/index.ts'

const asked = (content: string): object => ({ model: 'm', messages: [{ role: 'user', content }] })

function open(bounds: object = {}): Promise<OpenGateway> {
  return OpenGateway.open({
    models: [{ name: 'm', backends: [{ url: 'http://scripted.invalid' }] }],
    backends: { m: [new ScriptedBackend(() => 'hello')] },
    bounds,
  })
}

test('idle sessions are evicted from memory by size, oldest first', async () => {
  await using gateway = await open({ maxRememberedBytes: 2500 })
  for (let count = 0; count < 10; count += 1) await gateway.ask((await gateway.session()).caller, asked('hello'))
  // Two messages each, one with a name.
  expect(gateway.gateway.status().idleSessions).toBe(2)
})

test('reading a long session does not block the event loop', async () => {
  await using gateway = await open({ maxRemembered: 0 })
  const { id } = await gateway.session()
  // One that was never looked at is known to be empty.
  await gateway.gateway.session(admin, id)
  const recorder = new AttemptRecorder(gateway.store.journal, id, 0)
  for (let seq = 0; seq < 4000; seq += 1) {
    const message = { role: 'user', content: `message ${seq} ${'x'.repeat(500)}` } as const
    const node = { seq, parent: seq === 0 ? null : seq - 1, hash: '', message, sampled: false, at: 1 }
    recorder.node(node, JSON.stringify(message))
  }
  await gateway.store.journal.durable()
  for (const isEnded of [false, true]) {
    if (isEnded) await gateway.gateway.endSession(admin, id)
    let turns = 0
    const count = (): void => {
      turns += 1
      next = setImmediate(count)
    }
    let next = setImmediate(count)
    await gateway.gateway.session(admin, id)
    clearImmediate(next)
    expect(turns).toBeGreaterThan(0)
  }
})

test('the limit of open sessions includes sessions that are starting', async () => {
  await using gateway = await open({ maxOpenSessions: 3 })
  const starts = Array.from({ length: 5 }, () => gateway.gateway.startSessions(admin, {}))
  const results = await Promise.allSettled(starts)
  expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(3)
  expect(gateway.gateway.status().openSessions).toBe(3)
  // What was refused holds no place.
  const [{ id } = { id: '' }] = gateway.gateway.sessions(admin, { limit: 1 }).sessions
  await gateway.gateway.endSession(admin, id)
  await gateway.session()
})
