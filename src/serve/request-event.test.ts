import { expect, test } from 'vitest'
import { RunStore, type EventEntry } from '../store/index.ts'
import { newRun, temporaryFolder } from '../../test/store/_fixtures.ts'
import { journalRequest, readRequests, type JournalledRequest } from './_request-event.ts'
import type { KnownRequest } from './known-request.ts'
import { JsonText } from './rollout-request.ts'

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

test('a request comes back as it was journalled, in however many parts', async () => {
  using folder = temporaryFolder()
  await using store = await openStore(folder.path)
  const sampling = { temperature: 0.5 }
  await journalRequest(store.journal, request, { tasks, sampling })
  const read = readRequests(store.reader, () => {})
  const { value } = await read.next()
  const journalled = value as JournalledRequest
  expect(journalled).toMatchObject({ request, sampling })
  expect(tasks.map((_, offset) => journalled.task(3 + offset))).toEqual(tasks.map(({ text }) => new JsonText(text)))
  expect(await read.next()).toEqual({ done: true, value: 504 })
  // The rows are with the tasks, and nowhere else.
  for (const { data } of store.reader.events()) expect(JSON.stringify(data)).not.toContain('"n":')
})

test('a request of a version that kept its tasks in the events is read, too', async () => {
  using folder = temporaryFolder()
  await using store = await openStore(folder.path)
  const event = (name: string, data: object): EventEntry => {
    return { kind: 'event', rollout: null, attempt: 0, name, at: 1, data: JSON.stringify(data) }
  }
  const { at: _at, outcomes: _outcomes, tasks: _tasks, ...known } = request
  store.journal.appendAll([
    event('request-tasks', { firstTask: 3, upTo: 5, tasks: [{ n: 0 }, { n: 1 }] }),
    event('request', { ...known, tasks: [{ n: 2 }] }),
  ])
  await store.journal.durable()
  const read = readRequests(store.reader, () => {})
  const { request: found, task } = (await read.next()).value as JournalledRequest
  expect(found).toEqual({ ...request, tasks: 3 })
  expect([3, 4, 5].map(task)).toEqual([{ n: 0 }, { n: 1 }, { n: 2 }])
  expect(await read.next()).toEqual({ done: true, value: 6 })
})

test.each([
  ['request', { id: 'many', tasks: 1 }],
  ['request-tasks', { firstTask: 0, upTo: 'all' }],
  ['request-detached', { request: 'many' }],
])('a %s event that is none is said, not taken for one', async (name, data) => {
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
