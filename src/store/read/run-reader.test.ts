import { appendFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { expect, test } from 'vitest'
import type { JournalEntry, RolloutEnd } from '../write/journal.ts'
import { runFiles } from '../run/run-folder.ts'
import { RunReader } from './run-reader.ts'
import { applyAll } from '../../../test/support/store/apply-entries.ts'
import { damagePage } from '../../../test/support/store/damage.ts'
import { nodeEntry, recordParts, rolloutEntries, temporaryFolder } from '../../../test/support/store/fixtures.ts'

const startOf = (rollout: string, attempt: number, parent: string | null = null): JournalEntry => ({
  kind: 'attempt-start',
  rollout,
  attempt,
  parent,
  task: 5,
  sample: 0,
  at: 10 + attempt,
})

const endOf = (rollout: string, attempt: number): JournalEntry => ({
  kind: 'attempt-end',
  isHeld: true,
  rollout,
  attempt,
  at: 20 + attempt,
  outcome: 'completed',
  record: JSON.stringify({ id: rollout, attempt, outcome: 'completed', ...recordParts }),
  leaf: 4,
})

test('a finished rollout is read back as it was recorded', () => {
  using folder = temporaryFolder()
  applyAll(folder.path, rolloutEntries(3, { messages: ['a', 'b', 'c'] }))
  using reader = RunReader.open(folder.path)
  expect(reader.rollout('3-0')).toEqual({
    id: '3-0',
    sample: 0,
    attempt: 1,
    outcome: 'completed',
    reward: 1,
    ...recordParts,
    messages: [
      { role: 'user', content: 'a' },
      { role: 'assistant', content: 'b' },
      { role: 'user', content: 'c' },
    ],
  })
  expect(reader.rollout('4-0')).toBeUndefined()
  expect(reader.hasEnded('3-0')).toBe(true)
  expect(reader.hasEnded('4-0')).toBe(false)
  expect(reader.task(3)).toEqual({ index: 3, id: 'task-3', digest: 'd3' })
  expect(reader.task(4)).toBeUndefined()
  expect([...reader.ended()]).toEqual([
    {
      rollout: '3-0',
      attempt: 1,
      task: 3,
      sample: 0,
      outcome: 'completed',
      reward: 1,
      leaf: 2,
      endedAt: 1_700_000_000_003,
      record: { id: '3-0', sample: 0, attempt: 1, outcome: 'completed', reward: 1, ...recordParts },
    },
  ])
})

test('the messages of a rollout are those of its last branch', () => {
  using folder = temporaryFolder()
  const branch = { ...nodeEntry({ rollout: '1-0', seq: 2, message: '{"role":"user","content":"other"}' }), parent: 0 }
  const entries = rolloutEntries(1)
  const end = { ...entries.pop(), leaf: 2 } as RolloutEnd
  applyAll(folder.path, [...entries, branch as JournalEntry, end])
  using reader = RunReader.open(folder.path)
  expect(reader.rollout('1-0')?.messages.map((message) => message.content)).toEqual(['question 1', 'other'])
  expect(reader.nodes('1-0', 1)).toHaveLength(3)
})

test.each(['5', '"x"', '{}', 'null', '[]', '{"role":"toString"}'])('the stored message %s is refused', (json) => {
  using folder = temporaryFolder()
  applyAll(folder.path, [...rolloutEntries(1), ...rolloutEntries(2)])
  using database = new DatabaseSync(join(folder.path, runFiles.database))
  database.prepare("UPDATE node SET message = ? WHERE rollout = '1-0' AND seq = 1").run(json)
  using reader = RunReader.open(folder.path)
  expect(() => reader.rollout('1-0')).toThrow('a message of 1-0 cannot be read; if it matters, restore')
  expect(() => reader.nodes('1-0', 1)).toThrow('message 1 of 1-0 cannot be read; if it matters, restore')
  expect(reader.rollout('2-0')?.messages).toHaveLength(2)
})

test('a node holds the metadata of its message', () => {
  using folder = temporaryFolder()
  const meta = JSON.stringify({ tool: { name: 'add', status: 'ok', ms: 3 } })
  applyAll(folder.path, [{ ...nodeEntry({ rollout: '1-0', seq: 0 }), meta } as JournalEntry])
  using reader = RunReader.open(folder.path)
  expect(reader.nodes('1-0', 1)).toEqual([
    {
      seq: 0,
      parent: null,
      hash: 'h0',
      message: { role: 'user', content: '0' },
      sampled: false,
      at: 1_700_000_000_001,
      tool: { name: 'add', status: 'ok', ms: 3 },
    },
  ])
})

test('unfinished rollouts have a state: cut off, held or ended', () => {
  using folder = temporaryFolder()
  applyAll(folder.path, [
    ...rolloutEntries(1),
    startOf('cut', 1),
    startOf('held', 1),
    endOf('held', 1),
    startOf('again', 1),
    endOf('again', 1),
    startOf('again', 2),
    startOf('cut.child', 1, 'cut'),
    startOf('cut.child', 2, 'cut'),
    endOf('cut.child', 2),
  ])
  using reader = RunReader.open(folder.path)
  expect([...reader.unfinished()]).toEqual([
    { rollout: 'cut', attempt: 1, task: 5, sample: 0, state: 'cut-off' },
    {
      rollout: 'held',
      attempt: 1,
      task: 5,
      sample: 0,
      state: 'held',
      heldOutcome: 'completed',
      heldRecord: { id: 'held', attempt: 1, outcome: 'completed', ...recordParts },
      heldLeaf: 4,
    },
    { rollout: 'again', attempt: 2, task: 5, sample: 0, state: 'cut-off' },
  ])
  expect(reader.attempts('again')).toEqual([
    expect.objectContaining({
      attempt: 1,
      startedAt: 11,
      end: { at: 21, outcome: 'completed', record: expect.anything(), leaf: 4 },
    }),
    expect.not.objectContaining({ end: expect.anything() }),
  ])
  expect(reader.children('cut')).toMatchObject([
    { rollout: 'cut.child', attempt: 1, parent: 'cut' },
    { rollout: 'cut.child', attempt: 2, end: { outcome: 'completed' } },
  ])
})

test('a reader sees commits made while it iterates, but no newly started rollouts as unfinished', () => {
  using folder = temporaryFolder()
  applyAll(folder.path, Array.from({ length: 600 }, (_, task) => rolloutEntries(task)).flat())
  applyAll(folder.path, [startOf('old', 1), startOf('older', 1)])
  using reader = RunReader.open(folder.path)
  const ended = reader.ended()
  const unfinished = reader.unfinished()
  expect(ended.next().value?.rollout).toBe('0-0')
  expect(unfinished.next().value?.rollout).toBe('old')
  applyAll(folder.path, [...rolloutEntries(600), startOf('new', 1), startOf('older', 2)])
  expect([...ended].map(({ rollout }) => rollout)).toEqual(Array.from({ length: 600 }, (_, index) => `${index + 1}-0`))
  expect([...unfinished].map(({ rollout, attempt }) => [rollout, attempt])).toEqual([['older', 1]])
})

test('events are read by name or all together', () => {
  using folder = temporaryFolder()
  const event = { kind: 'event', rollout: null, attempt: 0, at: 1 } as const
  applyAll(folder.path, [
    { ...event, name: 'a', data: '{"n":1}' },
    { ...event, name: 'b', data: '[]' },
  ])
  using reader = RunReader.open(folder.path)
  expect([...reader.events()].map(({ name }) => name)).toEqual(['a', 'b'])
  expect([...reader.events('a')]).toMatchObject([{ rollout: null, attempt: 0, name: 'a', at: 1, data: { n: 1 } }])
})

test('the events of one attempt include those recorded after the first read', () => {
  using folder = temporaryFolder()
  const event = (rollout: string | null, attempt: number, name: string, data: string): JournalEntry => ({
    kind: 'event',
    rollout,
    attempt,
    name,
    at: 1,
    data: JSON.stringify(data),
  })
  applyAll(folder.path, [
    event('0-0', 1, 'said', 'a'),
    event(null, 0, 'said', 'b'),
    event('0-0', 2, 'said', 'c'),
    event('0-0', 1, 'delivery', 'd'),
    event('0-0', 1, 'said', 'e'),
  ])
  using reader = RunReader.open(folder.path)
  const said = (attempt: number): unknown[] => reader.eventsOf('0-0', attempt, 'said').map(({ data }) => data)
  expect([said(1), said(2), said(3)]).toEqual([['a', 'e'], ['c'], []])
  applyAll(folder.path, [event('0-0', 1, 'said', 'f'), event('1-0', 1, 'said', 'g')])
  expect(said(1)).toEqual(['a', 'e', 'f'])
})

test('integrity() reports each problem', () => {
  using folder = temporaryFolder()
  applyAll(folder.path, [...rolloutEntries(1), ...rolloutEntries(2), ...rolloutEntries(3)])
  using reader = RunReader.open(folder.path)
  expect(reader.integrity()).toEqual([])
  using database = new DatabaseSync(join(folder.path, runFiles.database))
  const afterwards = (sql: string): string[] => {
    database.exec('SAVEPOINT before')
    database.exec(sql)
    database.exec('RELEASE before')
    return reader.integrity()
  }
  expect(afterwards("UPDATE node SET seq = 7 WHERE rollout = '1-0' AND seq = 1")).toEqual([
    'rollout 1-0 attempt 1: 2 messages are numbered 0 to 7',
    'rollout 1-0 ends with message 1, which is missing',
  ])
  expect(afterwards("DELETE FROM attempt WHERE rollout = '2-0'").join()).toContain(
    'messages of rollout 2-0 attempt 1, which never started',
  )
  expect(afterwards("DELETE FROM rollout WHERE id = '1-0'").join()).toMatch(
    /line 1 belongs to rollout 1-0, expected 2-0/,
  )
  appendFileSync(join(folder.path, runFiles.lines), 'more than was committed is not looked at')
  expect(afterwards("UPDATE rollout SET lines_length = 10 WHERE id = '3-0'").join()).toMatch(/not JSON/)
})

test.each([
  ['a record', "UPDATE rollout SET record = '{' WHERE id = '2-0'", 'the result of rollout 2-0'],
  ['a record that is null', "UPDATE rollout SET record = 'null' WHERE id = '2-0'", 'the result of rollout 2-0'],
  ['a record that is bytes', "UPDATE rollout SET record = x'7b7d' WHERE id = '2-0'", 'the result of rollout 2-0'],
  [
    'a record that cannot be added up',
    "UPDATE rollout SET record = json_set(record, '$.usage', json('{}')) WHERE id = '2-0'",
    'the result of rollout 2-0',
  ],
  ["an attempt's record", "UPDATE attempt SET record = '{}' WHERE rollout = '2-0'", 'the result of rollout 2-0'],
  ['a message', "UPDATE node SET message = '{' WHERE rollout = '2-0' AND seq = 1", 'message 1 of 2-0'],
  ['a message that is none', "UPDATE node SET message = '5' WHERE rollout = '2-0' AND seq = 1", 'message 1 of 2-0'],
  ['how a message came to be', "UPDATE node SET meta = '{{' WHERE rollout = '2-0' AND seq = 1", 'message 1 of 2-0'],
  ['an event', "UPDATE event SET data = '{'", 'an event limit-change of the run'],
])('integrity() reports %s that cannot be read', (_what, sql, named) => {
  using folder = temporaryFolder()
  const event = { kind: 'event', rollout: null, attempt: 0, at: 1, name: 'limit-change', data: '{}' } as const
  applyAll(folder.path, [...rolloutEntries(1), ...rolloutEntries(2), event])
  using database = new DatabaseSync(join(folder.path, runFiles.database))
  using reader = RunReader.open(folder.path)
  expect(reader.integrity()).toEqual([])
  database.exec(sql)
  expect(reader.integrity()).toEqual([`${named} cannot be read; if it matters, restore the run from a copy`])
})

test.each(['node', 'attempt', 'rollout', 'event', 'task'])(
  'integrity() reports a damaged page of %ss, and the other problems',
  (table) => {
    using folder = temporaryFolder()
    const event = { kind: 'event', rollout: null, attempt: 0, at: 1, name: 'limit-change', data: '{}' } as const
    applyAll(folder.path, [...rolloutEntries(1), event, { kind: 'reward', session: 's', node: null, value: 1, at: 1 }])
    damagePage(folder.path, table, 'leaf')
    using reader = RunReader.open(folder.path)
    const problems = reader.integrity()
    expect(problems).toContain('journal.sqlite is damaged: database disk image is malformed')
    expect(problems).toContain('a reward for session s, which never started')
  },
)
