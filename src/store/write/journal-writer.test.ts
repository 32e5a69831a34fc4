import { existsSync, readdirSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { expect, test } from 'vitest'
import { JournalWriter } from './journal-writer.ts'
import { runFiles } from '../run/run-folder.ts'
import { RunReader } from '../read/run-reader.ts'
import { applyAll } from '../../../test/support/store/apply-entries.ts'
import { nodeEntry, rolloutEntries, temporaryFolder } from '../../../test/support/store/fixtures.ts'

const linesOf = (folder: string): string[] =>
  readFileSync(join(folder, runFiles.lines), 'utf8').split('\n').slice(0, -1)

test('the second result of a rollout is kept as an event and changes nothing', () => {
  using folder = temporaryFolder()
  applyAll(folder.path, rolloutEntries(1))
  applyAll(folder.path, rolloutEntries(1, { attempt: 2, outcome: 'model_error' }))
  using reader = RunReader.open(folder.path)
  expect(reader.counts()).toMatchObject({ ended: 1, outcomes: { completed: 1 }, attempts: 2 })
  expect(reader.rollout('1-0')?.outcome).toBe('completed')
  expect([...reader.events('duplicate-result')]).toMatchObject([
    { rollout: '1-0', attempt: 2, data: { outcome: 'model_error' } },
  ])
  expect(linesOf(folder.path)).toHaveLength(1)
  expect(reader.integrity()).toEqual([])
})

test('an end without a start is kept as an event', () => {
  using folder = temporaryFolder()
  const ends = rolloutEntries(1).filter(({ kind }) => kind === 'attempt-end' || kind === 'rollout-end')
  applyAll(folder.path, ends)
  using reader = RunReader.open(folder.path)
  const kept = { name: 'attempt-unknown', rollout: '1-0', data: { id: '1-0' } }
  expect([...reader.events()]).toMatchObject([kept, kept])
  expect(reader.counts().ended).toBe(0)
})

test('a repeated start of an attempt keeps the first start time', () => {
  using folder = temporaryFolder()
  const start = { kind: 'attempt-start', rollout: '1-0', attempt: 1, parent: null, task: 1, sample: 0 } as const
  applyAll(folder.path, [
    { ...start, at: 1 },
    { ...start, at: 2 },
  ])
  using reader = RunReader.open(folder.path)
  expect(reader.attempts('1-0')).toMatchObject([{ startedAt: 1 }])
})

test('entries rolled back are in neither the database nor the file', () => {
  using folder = temporaryFolder()
  applyAll(folder.path, rolloutEntries(1))
  const writer = JournalWriter.open(folder.path)
  writer.begin()
  for (const entry of rolloutEntries(2)) writer.apply(entry)
  writer.rollback()
  writer.begin()
  for (const entry of rolloutEntries(3)) writer.apply(entry)
  writer.commit()
  writer.close()
  using reader = RunReader.open(folder.path)
  expect([...reader.ended()].map(({ rollout }) => rollout)).toEqual(['1-0', '3-0'])
  expect(linesOf(folder.path).map((line) => (JSON.parse(line) as { id: string }).id)).toEqual(['1-0', '3-0'])
})

test('only a writer without failures checkpoints the whole database at its end', () => {
  using folder = temporaryFolder()
  const logBytesAfter = (end: (writer: JournalWriter) => void): number => {
    const writer = JournalWriter.open(folder.path)
    // Without this one, closing would empty the log by itself.
    using _other = RunReader.open(folder.path)
    writer.begin()
    end(writer)
    writer.close()
    return statSync(join(folder.path, `${runFiles.database}-wal`)).size
  }
  expect(logBytesAfter((writer) => writer.commit())).toBe(0)
  // Whoever it failed for may still hold it, and would be waited for as long again.
  expect(
    logBytesAfter((writer) => {
      writer.apply({ kind: 'task', index: 1, id: 'one', digest: 'd' })
      writer.commit()
      writer.begin()
      writer.rollback()
    }),
  ).toBeGreaterThan(0)
})

test('lines of a failed transaction are removed from the file', () => {
  using folder = temporaryFolder()
  applyAll(folder.path, rolloutEntries(1))
  using other = new DatabaseSync(join(folder.path, runFiles.database))
  // Nothing is amiss until the very end of the transaction.
  other.exec(`
    CREATE TABLE allowed (id INTEGER PRIMARY KEY);
    CREATE TABLE refused (id REFERENCES allowed (id) DEFERRABLE INITIALLY DEFERRED);
    CREATE TRIGGER refuse AFTER INSERT ON rollout BEGIN INSERT INTO refused VALUES (1); END`)
  const writer = JournalWriter.open(folder.path)
  const write = (task: number): void => {
    writer.begin()
    for (const entry of rolloutEntries(task)) writer.apply(entry)
    writer.commit()
  }
  expect(() => write(2)).toThrow('FOREIGN KEY')
  writer.rollback()
  expect(linesOf(folder.path)).toHaveLength(1)
  other.exec('DROP TRIGGER refuse')
  write(3)
  writer.close()
  expect(linesOf(folder.path).map((line) => (JSON.parse(line) as { id: string }).id)).toEqual(['1-0', '3-0'])
})

test('large payloads are stored out of line, once each, and read back whole', () => {
  using folder = temporaryFolder()
  const large = 'ü'.repeat(100_000)
  const ids = Int32Array.from({ length: 100_000 }, (_, index) => index)
  const logprobs = Float32Array.from(ids, (id) => -id)
  const shape = { messages: [large, 'short', large], record: { answer: large } }
  const tokens = { ...nodeEntry({ rollout: '1-0', seq: 3 }), ids, logprobs, promptIds: ids.slice(0, 3) }
  applyAll(folder.path, [...rolloutEntries(1, shape), tokens])

  const blobs = readdirSync(join(folder.path, runFiles.blobs), { recursive: true, withFileTypes: true })
  const files = blobs.filter((entry) => entry.isFile())
  // The message (a user's both times), the record (of the attempt and of the rollout), ids, log-probabilities.
  expect(files.map((file) => file.name)).toHaveLength(4)
  using reader = RunReader.open(folder.path)
  expect(reader.rollout('1-0')?.answer).toBe(large)
  expect(reader.rollout('1-0')?.messages.map((message) => message.content)).toEqual([large, 'short', large])
  expect(reader.nodes('1-0', 1)[3]?.tokens).toEqual({ ids, logprobs, promptIds: ids.slice(0, 3) })
  expect(reader.integrity()).toEqual([])

  const [first, second] = files.map((file) => join(file.parentPath, file.name)) as [string, string]
  rmSync(first)
  writeFileSync(second, 'damaged')
  const problems = reader.integrity().join('\n')
  expect(problems).toContain(`${first} is missing`)
  expect(problems).toContain(`${second} is damaged`)
})

test('a payload with a damaged file is written again by the next entry that holds it', () => {
  using folder = temporaryFolder()
  const messages = ['x'.repeat(70_000)]
  applyAll(folder.path, rolloutEntries(1, { messages }))
  const root = join(folder.path, runFiles.blobs)
  const file = readdirSync(root, { recursive: true, withFileTypes: true }).find((entry) => entry.isFile())
  truncateSync(join(file?.parentPath ?? '', file?.name ?? ''), 1000)
  applyAll(folder.path, rolloutEntries(2, { messages }))
  using reader = RunReader.open(folder.path)
  expect(reader.integrity()).toEqual([])
  expect(reader.rollout('2-0')?.messages).toMatchObject([{ content: messages[0] }])
})

test('a small run makes no blobs', () => {
  using folder = temporaryFolder()
  applyAll(folder.path, rolloutEntries(1))
  expect(existsSync(join(folder.path, runFiles.blobs))).toBe(false)
})
