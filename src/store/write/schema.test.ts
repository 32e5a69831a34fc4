import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { expect, test } from 'vitest'
import { openForReading, openForWriting } from './database.ts'
import { createSchema, schemaVersion } from './schema.ts'
import { runFiles } from '../run/run-folder.ts'
import { temporaryFolder } from '../../../test/support/store/fixtures.ts'

const versionOf = (database: DatabaseSync) => database.prepare('PRAGMA user_version').get()?.['user_version']

test('an empty database gets the schema and its version; an existing one is not changed', () => {
  using folder = temporaryFolder()
  using database = openForWriting(folder.path)
  expect(versionOf(database)).toBe(schemaVersion)
  createSchema(database, folder.path)
  expect(versionOf(database)).toBe(schemaVersion)
})

test('commits are durable: write-ahead log, synchronous FULL', () => {
  using folder = temporaryFolder()
  using database = openForWriting(folder.path)
  expect(database.prepare('PRAGMA journal_mode').get()?.['journal_mode']).toBe('wal')
  expect(database.prepare('PRAGMA synchronous').get()?.['synchronous']).toBe(2)
})

test.each([
  ['newer', `PRAGMA user_version = ${schemaVersion + 1}`, schemaVersion + 1],
  ['older', 'PRAGMA user_version = 0', 0],
])('a database of a %s version is refused by the writer and the readers, and not changed', (_what, sql, version) => {
  using folder = temporaryFolder()
  {
    using database = openForWriting(folder.path)
    database.exec(sql)
  }
  for (const open of [openForWriting, openForReading]) {
    expect(() => open(folder.path)).toThrow(
      expect.objectContaining({
        code: 'store_version',
        rawMessage: expect.stringMatching(
          new RegExp(
            `has schema version ${version} and .* reads and writes version ${schemaVersion}; open it with the`,
          ),
        ),
      }),
    )
  }
  using database = new DatabaseSync(join(folder.path, runFiles.database))
  expect(versionOf(database)).toBe(version)
})

test('a reader of an empty folder fails with run_not_found', () => {
  using folder = temporaryFolder()
  expect(() => openForReading(folder.path)).toThrow(expect.objectContaining({ code: 'run_not_found' }))
})
