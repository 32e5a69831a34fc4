import { existsSync, mkdirSync, readdirSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setImmediate } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { pruneRuns } from './prune-runs.ts'
import { readRunFile, writeRunFile } from './run-file.ts'
import { runFiles } from './run-folder.ts'
import { RunStore } from '../run-store.ts'
import { temporaryFolder } from '../../../test/support/store/fixtures.ts'
import { dayMs, placeRun } from '../../../test/support/store/place-run.ts'

test('pruning deletes old complete runs and reports their size', async () => {
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

test('pruning does not delete a run in use, even one marked complete', async () => {
  using root = temporaryFolder()
  placeRun(root.path, 'busy', { days: 9 })
  await using store = await RunStore.open({ folder: join(root.path, 'busy') })
  expect(await pruneRuns(root.path, { keep: 0, includeUnfinished: true })).toEqual([])
  await store.finish('complete')
  expect(await pruneRuns(root.path, { keep: 0 })).toMatchObject([{ name: 'busy', removed: false }])
  expect(existsSync(join(root.path, 'busy', runFiles.run))).toBe(true)
})

test('pruning by name deletes only that run, under the same rules', async () => {
  using root = temporaryFolder()
  for (const name of ['it', 'it-too']) placeRun(root.path, name, { state: 'complete' })
  placeRun(root.path, 'resumable', { state: 'unfinished' })
  expect(await pruneRuns(root.path, { name: 'resumable' })).toEqual([])
  expect(await pruneRuns(root.path, { name: 'it', olderThanMs: dayMs })).toEqual([])
  expect(await pruneRuns(root.path, { name: 'it' })).toMatchObject([{ name: 'it', removed: true }])
  expect(readdirSync(root.path).toSorted()).toEqual(['it-too', 'resumable'])
})

test('two concurrent prunes share the work', async () => {
  using root = temporaryFolder()
  for (let index = 0; index < 12; index += 1) placeRun(root.path, `run-${index}`, { state: 'complete' })
  const both = await Promise.all([pruneRuns(root.path, { keep: 0 }), pruneRuns(root.path, { keep: 0 })])
  expect(both.flat().filter(({ removed }) => removed)).toHaveLength(12)
  expect(readdirSync(root.path)).toEqual([])
})

test('a prune removes what a killed prune left behind', async () => {
  using root = temporaryFolder()
  mkdirSync(join(root.path, '.pruned-nightly-4711', 'blobs'), { recursive: true })
  writeFileSync(join(root.path, '.pruned-nightly-4711', 'blobs', 'x'), 'x')
  mkdirSync(join(root.path, '.other'))
  await pruneRuns(root.path, { keep: 0, dryRun: true })
  expect(readdirSync(root.path)).toHaveLength(2)
  await pruneRuns(root.path, { keep: 0 })
  expect(readdirSync(root.path)).toEqual(['.other'])
  await pruneRuns(join(root.path, 'nowhere'), { keep: 0 })
})

test('runs that were resumed since the prune found them are kept', async () => {
  using root = temporaryFolder()
  for (let index = 0; index < 6; index += 1) placeRun(root.path, `run-${index}`, { state: 'complete' })
  const left = (): string[] => readdirSync(root.path).filter((name) => name.startsWith('run-'))
  const pruning = pruneRuns(root.path, { keep: 0 })
  while (left().length === 6) await setImmediate()
  const names = left()
  for (const name of names) {
    const run = readRunFile(join(root.path, name))
    if (run) writeRunFile(join(root.path, name), { ...run, state: 'unfinished' })
  }
  await pruning
  // One may have been on its way.
  expect(left().length).toBeGreaterThanOrEqual(names.length - 1)
})

test('a killed run is dated by its last write, and a run without a date is not old', async () => {
  using root = temporaryFolder()
  const startedAt = new Date(Date.now() - 9 * dayMs).toISOString()
  placeRun(root.path, 'worked-until-now', { days: 9, state: 'running', launches: [{ startedAt }] })
  placeRun(root.path, 'long-dead', { days: 9, state: 'running', launches: [{ startedAt }] })
  const then = new Date(startedAt)
  utimesSync(join(root.path, 'long-dead', runFiles.database), then, then)
  placeRun(root.path, 'undated', { state: 'complete', launches: [{ startedAt, endedAt: 'yesterday' }] })
  const pruned = await pruneRuns(root.path, { olderThanMs: 2 * dayMs, includeUnfinished: true })
  expect(pruned).toMatchObject([{ name: 'long-dead', removed: true }])
})

test('pruning does not delete a run that is linked from elsewhere', async () => {
  using root = temporaryFolder()
  using disk = temporaryFolder()
  placeRun(disk.path, 'moved', { days: 9, state: 'complete' })
  placeRun(root.path, 'here', { days: 9, state: 'complete' })
  symlinkSync(join(disk.path, 'moved'), join(root.path, 'linked'))
  expect(await pruneRuns(root.path, { keep: 0 })).toMatchObject([{ name: 'here', removed: true }])
  expect(readdirSync(root.path)).toEqual(['linked'])
})
