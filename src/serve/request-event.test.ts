import { expect, test } from 'vitest'
import { RunStore } from '../store/index.ts'
import { newRun, temporaryFolder } from '../../test/store/_fixtures.ts'
import { journalRequest, readRequests } from './_request-event.ts'
import type { KnownRequest } from './known-request.ts'

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
  expect(value).toEqual({ request, sampling, tasks: tasks.map((task) => task.value) })
  expect(await read.next()).toEqual({ done: true, value: 504 })
})

test.each([
  ['request', { id: 'many', tasks: [] }],
  ['request-tasks', { firstTask: 0, upTo: 'all', tasks: [] }],
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
