import { readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { expect, test } from 'vitest'
import { runFiles } from '../run/run-folder.ts'
import { RunReader } from './run-reader.ts'
import { applyAll } from '../../../test/support/store/apply-entries.ts'
import { temporaryFolder } from '../../../test/support/store/fixtures.ts'
import type { TaskEntry } from '../write/journal.ts'

function taskEntry(index: number, row: string | undefined, digest = `of ${row}`): TaskEntry {
  return { kind: 'task', index, id: `task-${index}`, digest, row }
}

function storedRows(folder: string): unknown[] {
  using database = new DatabaseSync(join(folder, runFiles.database), { readOnly: true })
  return database
    .prepare('SELECT row FROM task_row ORDER BY position')
    .all()
    .map(({ row }) => row)
}

test('equal rows are stored once, and each task reads its own row', () => {
  using folder = temporaryFolder()
  applyAll(folder.path, [taskEntry(0, '{"n":1}'), taskEntry(1, '{"n":2}'), taskEntry(2, '{"n":1}')])
  applyAll(folder.path, [taskEntry(3, '{"n":2}'), taskEntry(0, '{"n":1}')])
  expect(storedRows(folder.path)).toEqual(['{"n":1}', '{"n":2}'])
  using reader = RunReader.open(folder.path)
  expect([...reader.tasks()].map(({ index, row }) => [index, row])).toEqual([
    [0, { n: 1 }],
    [1, { n: 2 }],
    [2, { n: 1 }],
    [3, { n: 2 }],
  ])
  expect(reader.integrity()).toEqual([])
})

test.each(['5', '"blob:text"', 'null', '[]', '{"a": 1.0}'])('the row %s is read back unchanged', (row) => {
  using folder = temporaryFolder()
  applyAll(folder.path, [taskEntry(7, row)])
  using reader = RunReader.open(folder.path)
  expect(reader.taskRowText(7)).toBe(row)
  expect(reader.task(7)?.row).toEqual(JSON.parse(row))
})

test('a large row is stored once, as a file', () => {
  using folder = temporaryFolder()
  const row = JSON.stringify({ image: 'x'.repeat(200_000) })
  applyAll(folder.path, [taskEntry(0, row), taskEntry(1, row)])
  const blobs = join(folder.path, runFiles.blobs)
  const files = readdirSync(blobs, { recursive: true, withFileTypes: true }).filter((each) => each.isFile())
  expect(files).toHaveLength(1)
  using reader = RunReader.open(folder.path)
  expect(reader.taskRowText(1)).toBe(row)
  rmSync(blobs, { recursive: true })
  expect(() => reader.task(1)?.row).toThrow(
    expect.objectContaining({ code: 'store_failed', message: expect.stringContaining('the row of task 1') }),
  )
  // The rest of the task is there all the same.
  expect(reader.task(1)?.id).toBe('task-1')
  expect(reader.integrity().join('\n')).toMatch(/task_row\.row: .*is missing\nthe row of task 0 cannot be read/)
})

test('a task without a JSON row has no row', () => {
  using folder = temporaryFolder()
  applyAll(folder.path, [taskEntry(0, undefined)])
  using reader = RunReader.open(folder.path)
  expect([reader.task(0)?.row, reader.taskRowText(0), reader.taskRowText(1)]).toEqual([undefined, undefined, undefined])
})

test('many tasks are read in order, page by page', () => {
  using folder = temporaryFolder()
  const count = 1_000
  applyAll(
    folder.path,
    Array.from({ length: count }, (_, index) => taskEntry(count - 1 - index, String(index % 3))),
  )
  using reader = RunReader.open(folder.path)
  expect([...reader.tasks()].map(({ index }) => index)).toEqual(Array.from({ length: count }, (_, index) => index))
  expect(storedRows(folder.path)).toHaveLength(3)
})
