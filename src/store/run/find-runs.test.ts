import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { findRuns, latestUnfinished } from './find-runs.ts'
import { runFiles } from './run-folder.ts'
import { RunStore } from '../run-store.ts'
import { temporaryFolder } from '../../../test/support/store/fixtures.ts'
import { placeRun } from '../../../test/support/store/place-run.ts'

test('runs are listed newest first; unreadable runs are reported, other folders are skipped', async () => {
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

test('the newest unfinished run of a configuration is found, unless it is in use', async () => {
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

test('a run is found through a link to its folder; a dangling link is skipped', async () => {
  using root = temporaryFolder()
  using disk = temporaryFolder()
  placeRun(disk.path, 'moved', { state: 'unfinished' })
  symlinkSync(join(disk.path, 'moved'), join(root.path, 'linked'))
  symlinkSync(join(disk.path, 'gone'), join(root.path, 'dangling'))
  expect(await findRuns(root.path)).toMatchObject({ runs: [{ name: 'linked' }], broken: [] })
  expect((await latestUnfinished(root.path, 'digest'))?.name).toBe('linked')
})
