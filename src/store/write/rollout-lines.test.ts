import { copyFileSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { expect, test } from 'vitest'
import { JournalWriter } from './journal-writer.ts'
import { rolloutLine } from '../read/rollout-line.ts'
import { runFiles } from '../run/run-folder.ts'
import { RunReader } from '../read/run-reader.ts'
import { RunStore } from '../run-store.ts'
import { applyAll } from '../../../test/support/store/apply-entries.ts'
import { newRun, rolloutEntries, temporaryFolder } from '../../../test/support/store/fixtures.ts'

/** A run of three finished rollouts, one of them long enough for blobs, and its file as it was written. */
function written() {
  const folder = temporaryFolder()
  for (const task of [0, 1, 2]) {
    applyAll(folder.path, rolloutEntries(task, task === 1 ? { messages: ['y'.repeat(70_000), 'ö'] } : {}))
  }
  const path = join(folder.path, runFiles.lines)
  return {
    folder: folder.path,
    path,
    content: readFileSync(path, 'utf8'),
    [Symbol.dispose]: () => folder[Symbol.dispose](),
  }
}

const reopen = (folder: string): void => JournalWriter.open(folder).close()

test('the record comes first, then the messages', () => {
  expect(rolloutLine('{"id":"1-0"}', ['{"role":"user"}', '{"role":"tool"}'])).toBe(
    '{"id":"1-0","messages":[{"role":"user"},{"role":"tool"}]}\n',
  )
  expect(rolloutLine('{}', [], ',"nodes":[]')).toBe('{"messages":[],"nodes":[]}\n')
})

test('a file without changes is not written', () => {
  using run = written()
  const before = statSync(run.path)
  reopen(run.folder)
  const after = statSync(run.path)
  expect([after.ino, after.mtimeMs]).toEqual([before.ino, before.mtimeMs])
})

test('a file deleted during the run is complete again after the run is closed', async () => {
  using root = temporaryFolder()
  const folder = join(root.path, 'run')
  const path = join(folder, runFiles.lines)
  await using store = await RunStore.open({ folder, create: newRun() })
  for (const task of [0, 1, 2]) store.journal.appendAll(rolloutEntries(task))
  await store.journal.durable()
  const content = readFileSync(path, 'utf8')
  rmSync(path)
  store.journal.appendAll(rolloutEntries(3))
  await store.journal.durable()
  await store.close()
  expect(readFileSync(path, 'utf8').split('\n')).toHaveLength(5)
  expect(readFileSync(path, 'utf8')).toContain(content)
  using reader = RunReader.open(folder)
  expect(reader.integrity()).toEqual([])
})

test.each([
  ['an older copy', rolloutEntries(0)],
  ['an empty one', []],
  ["another run's", rolloutEntries(0, { messages: ['of another run'] })],
])('results unknown to the database, because it is %s, are not changed', (_what, entries) => {
  using run = written()
  using other = temporaryFolder()
  applyAll(other.path, entries)
  copyFileSync(join(other.path, runFiles.database), join(run.folder, runFiles.database))
  expect(() => reopen(run.folder)).toThrow(
    expect.objectContaining({
      code: 'store_failed',
      message: expect.stringMatching(/holds more results than journal\.sqlite knows of; restore .* or remove rollouts/),
    }),
  )
  expect(readFileSync(run.path, 'utf8')).toBe(run.content)
  // As it says.
  rmSync(run.path)
  applyAll(run.folder, rolloutEntries(5))
  using reader = RunReader.open(run.folder)
  expect(reader.integrity()).toEqual([])
})

test('results are written to their file after their commit, never before', () => {
  using run = written()
  const writer = JournalWriter.open(run.folder)
  writer.begin()
  for (const entry of rolloutEntries(3)) writer.apply(entry)
  expect(readFileSync(run.path, 'utf8')).toBe(run.content)
  writer.commit()
  expect(readFileSync(run.path, 'utf8').startsWith(`${run.content}{"id":"3-0"`)).toBe(true)
  writer.close()
})

test('a run continues after all its results are reopened', () => {
  using run = written()
  const writer = JournalWriter.open(run.folder)
  expect(writer.retryFailed({ outcomes: ['completed'], reopened: [], wholeGroups: false }, 1)).toBe(3)
  writer.close()
  expect(readFileSync(run.path, 'utf8')).toBe('')
  applyAll(run.folder, rolloutEntries(3))
  using reader = RunReader.open(run.folder)
  expect(reader.integrity()).toEqual([])
})

test.each([
  ['shorter', (path: string) => truncateSync(path, statSync(path).size - 5)],
  ['missing', (path: string) => rmSync(path)],
  ['of the right length and empty', (path: string) => writeFileSync(path, new Uint8Array(statSync(path).size))],
])('a file that is %s is rebuilt with identical bytes', (_what, damage) => {
  using run = written()
  damage(run.path)
  reopen(run.folder)
  expect(readFileSync(run.path, 'utf8')).toBe(run.content)
  applyAll(run.folder, rolloutEntries(3))
  using reader = RunReader.open(run.folder)
  expect(reader.integrity()).toEqual([])
})

test('an interrupted rebuild is repeated', () => {
  using run = written()
  {
    using database = new DatabaseSync(join(run.folder, runFiles.database))
    database.exec('UPDATE rollout SET lines_length = -1 WHERE position = (SELECT max(position) FROM rollout)')
  }
  writeFileSync(run.path, 'something longer than it should be'.repeat(10_000))
  using reader = RunReader.open(run.folder)
  expect(reader.integrity()).toEqual([expect.stringContaining('due to be rebuilt')])
  reopen(run.folder)
  expect(readFileSync(run.path, 'utf8')).toBe(run.content)
})

test.each([
  ['a record that is no JSON', `UPDATE rollout SET record = '{"id":' WHERE id = '1-0'`],
  ['a message that is no JSON', `UPDATE node SET message = '{"role":"us' WHERE rollout = '1-0' AND seq = 1`],
  ['a message whose file is gone', "UPDATE node SET message = 'blob:0000' WHERE rollout = '1-0' AND seq = 0"],
  ['a missing message', "DELETE FROM node WHERE rollout = '1-0' AND seq = 1"],
])('%s damages only its own line of a rebuilt file', (_what, sql) => {
  using run = written()
  {
    using database = new DatabaseSync(join(run.folder, runFiles.database))
    database.exec(sql)
  }
  rmSync(run.path)
  applyAll(run.folder, rolloutEntries(3))
  const before = run.content.split('\n')
  const lines = readFileSync(run.path, 'utf8').split('\n')
  expect(lines).toHaveLength(5)
  expect([lines[0], lines[2]]).toEqual([before[0], before[2]])
  expect(JSON.parse(lines[1] ?? '')).toMatchObject({ kind: 'damaged', id: '1-0', task: { index: 1, id: 'task-1' } })
  using reader = RunReader.open(run.folder)
  expect(reader.integrity().join()).not.toContain(runFiles.lines)
})

test('results are reopened though another one is damaged', () => {
  using run = written()
  applyAll(run.folder, rolloutEntries(3, { outcome: 'env_error' }))
  {
    using database = new DatabaseSync(join(run.folder, runFiles.database))
    database.exec("DELETE FROM node WHERE rollout = '1-0' AND seq = 1")
  }
  const writer = JournalWriter.open(run.folder)
  expect(writer.retryFailed({ outcomes: ['env_error'], reopened: [], wholeGroups: false }, 1)).toBe(1)
  writer.close()
  const ids = readFileSync(run.path, 'utf8').trimEnd().split('\n')
  expect(ids.map((line) => (JSON.parse(line) as { id: string }).id)).toEqual(['0-0', '1-0', '2-0'])
})
