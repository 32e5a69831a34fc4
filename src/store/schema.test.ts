import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { expect, test } from 'vitest'
import { openForReading, openForWriting } from './_open-database.ts'
import { migrate, schemaVersion } from './_schema.ts'
import { runFiles } from './run-folder.ts'
import { temporaryFolder } from '../../test/store/_fixtures.ts'

const versionOf = (database: DatabaseSync) =>
  database.prepare("SELECT value FROM meta WHERE key = 'schema_version'").get()

test('an empty database is brought to the present version, and a present one is left alone', () => {
  using folder = temporaryFolder()
  using database = openForWriting(folder.path)
  expect(versionOf(database)?.['value']).toBe(schemaVersion)
  migrate(database, folder.path)
  expect(versionOf(database)?.['value']).toBe(schemaVersion)
})

test('commits are durable: write-ahead log, synchronous FULL', () => {
  using folder = temporaryFolder()
  using database = openForWriting(folder.path)
  expect(database.prepare('PRAGMA journal_mode').get()?.['journal_mode']).toBe('wal')
  expect(database.prepare('PRAGMA synchronous').get()?.['synchronous']).toBe(2)
})

test('a step that fails leaves the old version whole', () => {
  using folder = temporaryFolder()
  using database = new DatabaseSync(join(folder.path, runFiles.database))
  database.exec('CREATE TABLE node (in_the_way)')
  expect(() => migrate(database, folder.path)).toThrow('already exists')
  expect(database.isTransaction).toBe(false)
  expect(versionOf(database)).toBeUndefined()
  const tables = database.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").all()
  expect(tables.map((row) => row['name'])).toEqual(['meta', 'node'])
})

test('a newer version is refused, by the writer and by readers, and not touched', () => {
  using folder = temporaryFolder()
  {
    using database = openForWriting(folder.path)
    database.prepare("UPDATE meta SET value = ? WHERE key = 'schema_version'").run(schemaVersion + 1)
  }
  expect(() => openForWriting(folder.path)).toThrow(expect.objectContaining({ code: 'store_version' }))
  expect(() => openForReading(folder.path)).toThrow(/newer Millrace.*update millrace/)
})

test('a reader does not migrate', () => {
  using folder = temporaryFolder()
  {
    using database = openForWriting(folder.path)
    database.exec("UPDATE meta SET value = 0 WHERE key = 'schema_version'")
  }
  expect(() => openForReading(folder.path)).toThrow(/continue it once with --resume/)
})

test('a reader of nothing says so', () => {
  using folder = temporaryFolder()
  expect(() => openForReading(folder.path)).toThrow(expect.objectContaining({ code: 'run_not_found' }))
})
