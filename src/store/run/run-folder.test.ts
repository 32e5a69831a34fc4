import { existsSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { newRunFile, readRunFile, writeRunFile } from './run-file.ts'
import { createRunFolder, reserveRunName, runFiles, runFolder } from './run-folder.ts'
import { newRun, temporaryFolder } from '../../../test/support/store/fixtures.ts'

test.each(['a', 'arithmetic-2026.11.15_a', '_x', '9'.repeat(100)])('%s can be the name of a run', (name) => {
  expect(runFolder('/runs', name)).toBe(`/runs/${name}`)
})

test.each(['', '.', '..', '.hidden', '-v', 'a/b', 'a b', 'ä', 'a\n', 'x'.repeat(101)])('refuses name "%s"', (name) => {
  expect(() => runFolder('/runs', name)).toThrow(expect.objectContaining({ code: 'usage' }))
})

test('a half-created folder can be used', () => {
  using folder = temporaryFolder()
  writeFileSync(join(folder.path, runFiles.lock), '')
  writeFileSync(join(folder.path, 'run.json.tmp'), '{')
  expect(() => createRunFolder(folder.path)).not.toThrow()
  expect(readdirSync(folder.path)).toEqual([runFiles.lock, 'run.json.tmp'])
})

test('names requested at once are all different', () => {
  using folder = temporaryFolder()
  const root = join(folder.path, 'made', 'as', 'needed')
  const names = Array.from({ length: 3 }, () => reserveRunName(root, 'sweep'))
  expect(names).toEqual(['sweep', 'sweep-2', 'sweep-3'])
  expect(readdirSync(root)).toEqual(names)
})

test('a database without run.json is not taken for a new run', () => {
  using folder = temporaryFolder()
  writeFileSync(join(folder.path, runFiles.database), '')
  expect(() => createRunFolder(folder.path)).toThrow(
    expect.objectContaining({ code: 'store_failed', message: expect.stringContaining('but no run.json; restore') }),
  )
})

test('a folder below a file is refused', () => {
  using folder = temporaryFolder()
  const file = join(folder.path, 'file')
  writeFileSync(file, '')
  for (const make of [() => createRunFolder(join(file, 'runs', 'a')), () => reserveRunName(file, 'a')]) {
    expect(make).toThrow(expect.objectContaining({ code: 'folder_unwritable' }))
  }
})

// Node's own recursive mkdir never comes back from there.
test.runIf(existsSync('/proc/self'))('a folder that cannot be made where it seems possible is refused, too', () => {
  expect(() => createRunFolder('/proc/runs/a')).toThrow(expect.objectContaining({ code: 'folder_unwritable' }))
})

test('the description is read back as written, and no temporary file is left', () => {
  using folder = temporaryFolder()
  const file = newRunFile(newRun({ config: { limits: { maxTurns: 3 } } }))
  writeRunFile(folder.path, file)
  expect(readRunFile(folder.path)).toEqual(file)
  expect(readdirSync(folder.path)).toEqual(['run.json'])
})

test('only the latest launches are kept', () => {
  using folder = temporaryFolder()
  const launches = Array.from({ length: 250 }, (_, index) => ({ startedAt: String(index) }))
  writeRunFile(folder.path, { ...newRunFile(newRun()), launches })
  expect(readRunFile(folder.path)?.launches.at(0)).toEqual({ startedAt: '50' })
  expect(readRunFile(folder.path)?.launches.at(-1)).toEqual({ startedAt: '249' })
})

test.each([
  ['{', 'store_failed', 'is not JSON'],
  ['{"schemaVersion":1}', 'store_failed', 'does not describe a run'],
  ['{"schemaVersion":2,"later":true}', 'store_version', 'newer Millrace'],
])('a description of %s is refused', (text, code, message) => {
  using folder = temporaryFolder()
  writeFileSync(join(folder.path, runFiles.run), text)
  expect(() => readRunFile(folder.path)).toThrow(
    expect.objectContaining({ code, message: expect.stringContaining(message) }),
  )
})
