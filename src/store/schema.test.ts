import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { expect, test } from 'vitest'
import { openForReading, openForWriting } from './_open-database.ts'
import { migrate, schemaVersion } from './_schema.ts'
import { runFiles } from './run-folder.ts'
import { RunReader } from './run-reader.ts'
import { randomSession } from '../../test/gateway/_random-session.ts'
import { sessionEntries } from '../../test/gateway/_store-session.ts'
import { applyAll } from '../../test/store/_apply.ts'
import { recordParts, rolloutEntries, temporaryFolder } from '../../test/store/_fixtures.ts'

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
  expect(() => openForReading(folder.path)).toThrow(/continue it once, with the command that made it/)
})

test('a run that the first version wrote goes on as if it were of the present one', () => {
  using folder = temporaryFolder()
  {
    using database = new DatabaseSync(join(folder.path, runFiles.database))
    database.exec(readFileSync(new URL('../../test/store/_version-1.sql', import.meta.url), 'utf8'))
  }
  const parts = JSON.stringify(recordParts).slice(1, -1)
  const lineOf = (task: number): string =>
    `{"id":"${task}-0","sample":0,"attempt":1,"outcome":"completed","reward":1,${parts},"messages":[` +
    `{"role":"user","content":"question ${task}"},{"role":"assistant","content":"antwört ${task} 🙂"}]}\n`
  const path = join(folder.path, runFiles.lines)
  // The length was taken over as well: a file that is built anew has no such answer.
  const before = [0, 1, 2].map(lineOf).join('').replace('antwört 0', 'antwörT 0')
  writeFileSync(path, before)
  applyAll(folder.path, rolloutEntries(3, { attempt: 2 }))
  using reader = RunReader.open(folder.path)
  expect(readFileSync(path, 'utf8').startsWith(`${before}{"id":"3-0"`)).toBe(true)
  expect([...reader.ended()].map(({ rollout }) => rollout)).toEqual(['0-0', '1-0', '2-0', '3-0'])
  expect(reader.rollout('1-0')?.messages).toHaveLength(2)
  expect(reader.hasEnded('2-0')).toBe(true)
  expect([...reader.unfinished()]).toMatchObject([{ rollout: '4-0', state: 'held', heldRecord: { id: '4-0' } }])
  expect([...reader.unaccepted()]).toMatchObject([
    { rollout: '3-0', attempt: 1, isOpen: false, record: { id: '3-0', attempt: 1 } },
    { rollout: '4-0', isOpen: true, record: { id: '4-0' } },
  ])
  expect(reader.children('3-0')).toMatchObject([{ rollout: '3-0.child', attempt: 2 }])
  expect(reader.integrity()).toEqual([])
})

test('a run of the version before sessions goes on, and takes sessions', () => {
  using folder = temporaryFolder()
  {
    using database = new DatabaseSync(join(folder.path, runFiles.database))
    database.exec(readFileSync(new URL('../../test/store/_version-3.sql', import.meta.url), 'utf8'))
  }
  expect(() => RunReader.open(folder.path)).toThrow(/has schema 3 .*continue it once, with the command that made it/)
  const recorded = randomSession({ seed: 1, samples: 6 })
  applyAll(folder.path, [...rolloutEntries(2), ...sessionEntries(recorded)])
  using reader = RunReader.open(folder.path)
  expect([...reader.ended()].map(({ rollout }) => rollout)).toEqual(['0-0', '2-0'])
  expect([...reader.unfinished()]).toMatchObject([{ rollout: '1-0', state: 'cut-off' }])
  expect(reader.nodes('0-0', 1)[2]).toMatchObject({
    call: { model: 'm' },
    tokens: { ids: Int32Array.of(5, 6), version: '7', routedExperts: { shape: [2], experts: Uint8Array.of(3, 4) } },
  })
  expect([...reader.sessions.each()]).toEqual([recorded.session])
  expect([...reader.sessions.nodesOf(recorded.session.id)]).toEqual(recorded.nodes)
  expect(reader.integrity()).toEqual([])
})

test('a reader of nothing says so', () => {
  using folder = temporaryFolder()
  expect(() => openForReading(folder.path)).toThrow(expect.objectContaining({ code: 'run_not_found' }))
})
