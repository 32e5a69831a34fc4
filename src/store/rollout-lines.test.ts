import { appendFileSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { expect, test } from 'vitest'
import { JournalWriter } from './_journal-writer.ts'
import { rolloutLine } from './_rollout-line.ts'
import { runFiles } from './run-folder.ts'
import { RunReader } from './run-reader.ts'
import { applyAll } from '../../test/store/_apply.ts'
import { rolloutEntries, temporaryFolder } from '../../test/store/_fixtures.ts'

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

test('an undisturbed file is not touched', () => {
  using run = written()
  const before = statSync(run.path)
  reopen(run.folder)
  const after = statSync(run.path)
  expect([after.ino, after.mtimeMs]).toEqual([before.ino, before.mtimeMs])
})

test('what was written but never committed is cut off', () => {
  using run = written()
  appendFileSync(run.path, '{"id":"3-0","messages":[{"ro')
  reopen(run.folder)
  expect(readFileSync(run.path, 'utf8')).toBe(run.content)
})

test.each([
  ['shorter', (path: string) => truncateSync(path, statSync(path).size - 5)],
  ['missing', (path: string) => rmSync(path)],
  ['of the right length and empty', (path: string) => writeFileSync(path, new Uint8Array(statSync(path).size))],
])('a file that is %s is built anew, the same to the byte', (_what, damage) => {
  using run = written()
  damage(run.path)
  reopen(run.folder)
  expect(readFileSync(run.path, 'utf8')).toBe(run.content)
  applyAll(run.folder, rolloutEntries(3))
  using reader = RunReader.open(run.folder)
  expect(reader.integrity()).toEqual([])
})

test('a rebuild that was interrupted is done again', () => {
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
