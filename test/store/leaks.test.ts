import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { expect, test } from 'vitest'
import { runFiles, RunReader, RunStore } from '../../src/store/index.ts'
import { newRun, rolloutEntries, temporaryFolder } from './_fixtures.ts'
import { breakDatabase } from './_stored-rollouts.ts'

const cycles = 80

/** On Linux; elsewhere both are 0 and the test only shows that all those cycles end. */
function held(): { threads: number; descriptors: number } {
  if (process.platform !== 'linux') return { threads: 0, descriptors: 0 }
  return { threads: readdirSync('/proc/self/task').length, descriptors: readdirSync('/proc/self/fd').length }
}

async function cycle(folder: string, index: number): Promise<void> {
  await using store = await RunStore.open({ folder, create: newRun(), isSpooled: index % 2 === 0 })
  for (const entry of rolloutEntries(index)) store.journal.append(entry)
  // Some are closed in the middle of work, and some with all of it written and nothing in the database.
  if (index % 3 === 0) await store.journal.durable()
  if (index % 3 === 1) await store.journal.written()
}

test('opening and closing leaves no thread and no descriptor behind', async () => {
  using root = temporaryFolder()
  const folders = ['a', 'b', 'c', 'd'].map((name) => join(root.path, name))
  const cycleAll = (index: number): Promise<unknown> => Promise.all(folders.map((folder) => cycle(folder, index)))
  const perFolder = cycles / folders.length
  for (let index = 0; index < 3; index += 1) await cycleAll(index)
  const before = held()
  for (let index = 3; index < perFolder; index += 1) await cycleAll(index)
  expect(held()).toEqual(before)
  for (const folder of folders) {
    using reader = RunReader.open(folder)
    expect(reader.counts().ended).toBe(perFolder)
    expect(reader.integrity()).toEqual([])
  }
})

test('neither does a run that is written by the thread that runs it, also if its database fails', async () => {
  using root = temporaryFolder()
  const live = async (index: number): Promise<void> => {
    await using store = await RunStore.open({ folder: join(root.path, `${index}`), create: newRun(), isLone: true })
    if (index % 4 === 3) breakDatabase(store.folder)
    store.journal.appendAll(rolloutEntries(index))
    if (index % 4 === 0) await store.journal.durable()
    // Closed with a frame in the spool, and the timer that brings it in.
    if (index % 4 >= 2) await store.journal.synced()
  }
  for (let index = 0; index < 4; index += 1) await live(index)
  const before = held()
  for (let index = 4; index < 24; index += 1) await live(index)
  expect(held()).toEqual(before)
  const left = Array.from({ length: 24 }, (_, index) => existsSync(join(root.path, `${index}`, runFiles.spool)))
  expect(left, 'of those that failed').toEqual(left.map((_, index) => index % 4 === 3))
})

test('neither do openings that fail or are stopped', async () => {
  using root = temporaryFolder()
  const folder = join(root.path, 'run')
  const newer = join(root.path, 'newer')
  await cycle(folder, 0)
  await cycle(newer, 0)
  {
    using database = new DatabaseSync(join(newer, runFiles.database))
    database.exec("UPDATE meta SET value = 99 WHERE key = 'schema_version'")
  }
  const attempt = async (): Promise<void> => {
    await expect(RunStore.open({ folder: newer })).rejects.toMatchObject({ code: 'store_version' })
    const controller = new AbortController()
    const opening = RunStore.open({ folder, signal: controller.signal })
    controller.abort(new Error('stopped'))
    await expect(opening).rejects.toThrow('stopped')
    await using _store = await RunStore.open({ folder })
    await expect(RunStore.open({ folder })).rejects.toMatchObject({ code: 'run_in_use' })
  }
  await attempt()
  const before = held()
  for (let index = 0; index < 10; index += 1) await attempt()
  expect(held()).toEqual(before)
})
