import { expect, test } from 'vitest'
import { newRun, temporaryFolder } from '../../../test/support/store/fixtures.ts'
import { RunStore } from '../../store/index.ts'
import { journalRequest, readRequests, type JournalledRequest } from './request-journal.ts'
import type { KnownRequest } from './known-request.ts'
import { JsonText } from './request-body.ts'

const tasks = Array.from({ length: 501 }, (_, n) => {
  const text = JSON.stringify({ n })
  return { text, bytes: text.length, digest: String(n), value: { n }, name: undefined }
})
const request: KnownRequest = {
  id: 'many',
  digest: 'd',
  firstTask: 3,
  tasks: tasks.length,
  attempts: 2,
  isDetached: true,
  at: 1,
  outcomes: {},
}

async function openStore(folder: string): Promise<RunStore> {
  return await RunStore.open({ folder, create: newRun() })
}

test('a request is read back as journalled, in any number of parts', async () => {
  using folder = temporaryFolder()
  await using store = await openStore(folder.path)
  const sampling = { temperature: 0.5 }
  await journalRequest(store.journal, request, { tasks, terms: { sampling } })
  const read = readRequests(store.reader, () => {})
  const { value } = await read.next()
  const journalled = value as JournalledRequest
  expect(journalled).toMatchObject({ request, terms: { sampling } })
  expect(tasks.map((_, offset) => journalled.task(3 + offset))).toEqual(tasks.map(({ text }) => new JsonText(text)))
  expect(await read.next()).toEqual({ done: true, value: 504 })
  // The rows are with the tasks, and nowhere else.
  for (const { data } of store.reader.events()) expect(JSON.stringify(data)).not.toContain('"n":')
})

test.each([
  ['request', { id: 'many', tasks: 1 }],
  ['request-tasks', { firstTask: 0, upTo: 'all' }],
  ['request-detached', { request: 'many' }],
])('an invalid %s event is reported', async (name, data) => {
  using folder = temporaryFolder()
  await using store = await openStore(folder.path)
  const event = { kind: 'event' as const, rollout: null, attempt: 0, name, at: 1, data: JSON.stringify(data) }
  store.journal.appendAll([event])
  await store.journal.durable()
  await expect(readRequests(store.reader, () => {}).next()).rejects.toMatchObject({
    code: 'store_failed',
    message: expect.stringMatching(/a request that cannot be read: .*--run <name>/),
  })
})
