import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { JournalWriter } from './_journal-writer.ts'
import { findRuns, latestUnfinished } from './find-runs.ts'
import { pruneRuns } from './prune-runs.ts'
import { newRunFile, type RunFile, writeRunFile } from './run-file.ts'
import { runFiles } from './run-folder.ts'
import { RunStore } from './run-store.ts'
import { newRun, temporaryFolder } from '../../test/store/_fixtures.ts'

const dayMs = 24 * 3_600_000

/** A run as it lies there `days` after it was made. */
function placeRun(root: string, name: string, parts: Partial<RunFile> & { days?: number } = {}): void {
  const { days = 0, ...file } = parts
  const at = new Date(Date.now() - days * dayMs).toISOString()
  mkdirSync(join(root, name))
  const sittings = [{ startedAt: at, endedAt: at }]
  writeRunFile(join(root, name), { ...newRunFile(newRun({ name })), createdAt: at, sittings, ...file })
  JournalWriter.open(join(root, name)).close()
}

test('runs are listed newest first; what cannot be read is reported, what is no run is passed over', async () => {
  using root = temporaryFolder()
  placeRun(root.path, 'old', { days: 3, state: 'complete' })
  placeRun(root.path, 'new', { days: 1, state: 'unfinished' })
  placeRun(root.path, 'killed', { days: 2, state: 'running' })
  mkdirSync(join(root.path, 'other'))
  mkdirSync(join(root.path, 'torn'))
  writeFileSync(join(root.path, 'torn', runFiles.run), '{')
  mkdirSync(join(root.path, 'bare'))
  writeFileSync(join(root.path, 'bare', runFiles.database), '')
  writeFileSync(join(root.path, 'file'), '')
  const { runs, broken } = await findRuns(root.path)
  expect(runs.map(({ name, run }) => [name, run.state])).toEqual([
    ['new', 'unfinished'],
    ['killed', 'unfinished'],
    ['old', 'complete'],
  ])
  expect(broken.toSorted((a, b) => a.name.localeCompare(b.name))).toMatchObject([
    { name: 'bare', problem: 'run.json is missing' },
    { name: 'torn', problem: expect.stringContaining('not JSON') },
  ])
  expect(await findRuns(join(root.path, 'nowhere'))).toEqual({ runs: [], broken: [] })
})

test('the newest unfinished run of a configuration, unless somebody works on it', async () => {
  using root = temporaryFolder()
  placeRun(root.path, 'done', { state: 'complete' })
  placeRun(root.path, 'older', { days: 5, state: 'unfinished' })
  placeRun(root.path, 'other', { days: 1, state: 'unfinished', configDigest: 'another' })
  placeRun(root.path, 'newer', { days: 2, state: 'running' })
  expect((await latestUnfinished(root.path, 'digest'))?.name).toBe('newer')
  await using _store = await RunStore.open({ folder: join(root.path, 'newer') })
  expect((await latestUnfinished(root.path, 'digest'))?.name).toBe('older')
  expect(await latestUnfinished(root.path, 'unheard of')).toBeUndefined()
})

test('pruning takes old complete runs, and says how large they were', async () => {
  using root = temporaryFolder()
  for (const days of [1, 2, 3, 4]) placeRun(root.path, `run-${days}`, { days, state: 'complete' })
  placeRun(root.path, 'resumable', { days: 9, state: 'unfinished' })
  mkdirSync(join(root.path, 'run-4', 'blobs'))
  writeFileSync(join(root.path, 'run-4', 'blobs', 'x'), 'x'.repeat(5000))

  const plan = await pruneRuns(root.path, { olderThanMs: 2.5 * dayMs, keep: 1, dryRun: true })
  expect(plan.map(({ name, removed }) => [name, removed])).toEqual([
    ['run-3', false],
    ['run-4', false],
  ])
  expect(plan[1]?.bytes).toBeGreaterThan(5000)
  expect(readdirSync(root.path)).toHaveLength(5)

  const pruned = await pruneRuns(root.path, { olderThanMs: 2.5 * dayMs })
  expect(pruned.every(({ removed }) => removed)).toBe(true)
  expect(readdirSync(root.path).toSorted()).toEqual(['resumable', 'run-1', 'run-2'])

  await pruneRuns(root.path, { keep: 1, includeUnfinished: true })
  expect(readdirSync(root.path)).toEqual(['run-1'])
  await expect(pruneRuns(root.path, {})).rejects.toMatchObject({ code: 'usage' })
})

test('pruning leaves a run alone that is in use, even one that claims to be complete', async () => {
  using root = temporaryFolder()
  placeRun(root.path, 'busy', { days: 9 })
  await using store = await RunStore.open({ folder: join(root.path, 'busy') })
  expect(await pruneRuns(root.path, { keep: 0, includeUnfinished: true })).toEqual([])
  await store.finish('complete')
  expect(await pruneRuns(root.path, { keep: 0 })).toMatchObject([{ name: 'busy', removed: false }])
  expect(existsSync(join(root.path, 'busy', runFiles.run))).toBe(true)
})
