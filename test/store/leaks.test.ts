import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { expect, test } from 'vitest'
import { runFiles, RunReader, RunStore } from '../../src/store/index.ts'
import { newRun, rolloutEntries, temporaryFolder } from '../support/store/fixtures.ts'

const cycles = 80

/** On Linux; elsewhere both are 0 and the test only shows that all those cycles end. */
function held(): { threads: number; descriptors: number } {
  if (process.platform !== 'linux') return { threads: 0, descriptors: 0 }
  return { threads: readdirSync('/proc/self/task').length, descriptors: readdirSync('/proc/self/fd').length }
}

async function cycle(folder: string, index: number): Promise<void> {
  await using store = await RunStore.open({ folder, create: newRun() })
  for (const entry of rolloutEntries(index)) store.journal.append(entry)
  // Some are closed in the middle of work.
  if (index % 3 !== 2) await store.journal.durable()
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

test('openings that fail or are aborted leave no thread and no descriptor behind', async () => {
  using root = temporaryFolder()
  const folder = join(root.path, 'run')
  const newer = join(root.path, 'newer')
  await cycle(folder, 0)
  await cycle(newer, 0)
  {
    using database = new DatabaseSync(join(newer, runFiles.database))
    database.exec('PRAGMA user_version = 99')
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
