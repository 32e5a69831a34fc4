import { mkdir, mkdtempDisposable, readdir, readFile, readlink, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { MillraceError } from '../../errors/index.ts'
import { writeOutputFile } from './write-output-file.ts'

/** More than a stream holds, so that the file has some of them when it fails. */
async function* lines(count: number, failure?: Error): AsyncGenerator<string> {
  for (let index = 0; index < count; index += 1) yield `${'.'.repeat(2 ** 16)}\n`
  if (failure) throw failure
}

test('a failed write keeps the old file and leaves no partial one', async () => {
  await using folder = await mkdtempDisposable(join(tmpdir(), 'millrace-output-'))
  const output = { name: 'out.jsonl', flag: '-o', cwd: folder.path }
  const failure = new MillraceError('store_failed', 'a page is gone')
  await expect(writeOutputFile(lines(3, failure), output)).rejects.toBe(failure)
  expect(await readdir(folder.path)).toEqual([])
  await writeFile(join(folder.path, 'out.jsonl'), 'yesterday')
  await expect(writeOutputFile(lines(3, failure), output)).rejects.toBe(failure)
  expect(await readFile(join(folder.path, 'out.jsonl'), 'utf8')).toBe('yesterday')
  expect(await readdir(folder.path)).toEqual(['out.jsonl'])
})

test('a dangling link is kept, and its target is created', async () => {
  await using folder = await mkdtempDisposable(join(tmpdir(), 'millrace-output-'))
  await mkdir(join(folder.path, 'days', 'monday'), { recursive: true })
  await symlink('days/monday', join(folder.path, 'today'))
  await symlink('today/latest.jsonl', join(folder.path, 'latest.jsonl'))
  // From where it lies, not from where it was found.
  await symlink('../new.jsonl', join(folder.path, 'today', 'latest.jsonl'))
  const output = { name: 'latest.jsonl', flag: '-o', cwd: folder.path }
  expect(await writeOutputFile(lines(2), output)).toBe('latest.jsonl')
  expect(await readFile(join(folder.path, 'days', 'new.jsonl'), 'utf8')).toMatch(/^(?:\.+\n){2}$/)
  expect(await readlink(join(folder.path, 'latest.jsonl'))).toBe('today/latest.jsonl')
  expect(await readlink(join(folder.path, 'today', 'latest.jsonl'))).toBe('../new.jsonl')

  await symlink('ring.jsonl', join(folder.path, 'ring.jsonl'))
  const ring = writeOutputFile(lines(2), { ...output, name: 'ring.jsonl' })
  await expect(ring).rejects.toThrow(/cannot write .*ring\.jsonl \(ELOOP\); choose another with -o/)
  expect(await readlink(join(folder.path, 'ring.jsonl'))).toBe('ring.jsonl')
})

test('a link is kept, and its target is replaced', async () => {
  await using folder = await mkdtempDisposable(join(tmpdir(), 'millrace-output-'))
  await writeFile(join(folder.path, 'kept.jsonl'), 'yesterday')
  await symlink('kept.jsonl', join(folder.path, 'latest.jsonl'))
  const where = await writeOutputFile(lines(2), { name: 'latest.jsonl', flag: '-o', cwd: folder.path })
  expect(where).toBe('latest.jsonl, replacing its former content')
  expect(await readlink(join(folder.path, 'latest.jsonl'))).toBe('kept.jsonl')
  expect(await readFile(join(folder.path, 'kept.jsonl'), 'utf8')).toMatch(/^(?:\.+\n){2}$/)
})
