import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { expect, test, vi } from 'vitest'
import { OpenGateway } from '../../src/gateway/_testing/open-gateway.ts'
import { runFiles } from '../../src/store/index.ts'

const chat = { model: 'sim', messages: [{ role: 'user', content: 'hello' }] }
const responses = { model: 'sim', input: 'hello' }

/** A gateway whose writer gets nothing into the database until it is let. */
async function blocked(open: OpenGateway): Promise<() => void> {
  await open.store.journal.durable()
  const other = new DatabaseSync(join(open.store.folder, runFiles.database))
  other.exec('BEGIN IMMEDIATE')
  return () => other.close()
}

test('nobody who asks a model waits for the database', async () => {
  await using open = await OpenGateway.open({ models: [{ name: 'sim', simulator: {} }] })
  const [one, other] = [await open.session(), await open.session()]
  const unblock = await blocked(open)
  try {
    for (const { caller } of [one, other, one]) {
      for (const stream of [false, true]) {
        expect(await open.ask(caller, { ...chat, stream })).toMatchObject({ status: 200, isEnded: true })
        const said = await open.ask(caller, { ...responses, stream }, { api: 'responses' })
        expect(said).toMatchObject({ status: 200, isEnded: true })
      }
    }
    expect(Array.from(open.store.reader.sessions.nodesOf(one.id))).toEqual([])
  } finally {
    unblock()
  }
  expect(await open.nodes(one.id)).toHaveLength(9)
  expect(await open.nodes(other.id)).toHaveLength(5)
})

test('a request that refers to what was said just now, or comes when that was forgotten, is answered once it can be read', async () => {
  await using open = await OpenGateway.open({ models: [{ name: 'sim', simulator: {} }], bounds: { maxRemembered: 1 } })
  const [one, other] = [await open.session(), await open.session()]
  const unblock = await blocked(open)
  let answered = 0
  const asked = async (...parts: Parameters<OpenGateway['ask']>): Promise<void> => {
    expect(await open.ask(...parts)).toMatchObject({ status: 200, isEnded: true })
    answered += 1
  }
  const first = await open.ask(one.caller, responses, { api: 'responses' })
  using reading = vi.spyOn(open.store.journal, 'durable')
  const next = { ...responses, previous_response_id: first.document['id'] }
  const waiting = [
    asked(one.caller, next, { api: 'responses' }),
    asked(one.caller, next, { api: 'responses', countsOnly: true }),
    asked(one.caller, responses, { api: 'responses', retryCount: 1 }),
  ]
  // Makes the gateway forget the first, which is then read again.
  await open.ask(other.caller, chat)
  // Each has come to the database, or past it.
  await expect.poll(() => reading.mock.calls.length + answered).toBeGreaterThanOrEqual(waiting.length)
  expect(answered).toBe(0)
  unblock()
  await Promise.all(waiting)
  for (const { caller } of [other, one, other]) await asked(caller, chat)
  const samples = (await open.nodes(one.id)).filter(({ sampled }) => sampled)
  expect(samples).toHaveLength(3)
})
