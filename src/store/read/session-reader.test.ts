import { expect, test } from 'vitest'
import type { MessageNode } from '../../schema/index.ts'
import type { JournalEntry, SessionStart } from '../write/journal.ts'
import { RunReader } from './run-reader.ts'
import type { NodeWithoutTokens } from './stored-nodes.ts'
import { randomSession, sessionEntries } from '../../../test/support/gateway/random-session.ts'
import { applyAll } from '../../../test/support/store/apply-entries.ts'
import { nodeEntry, rolloutEntries, temporaryFolder } from '../../../test/support/store/fixtures.ts'

function start(session: string, parts: Partial<SessionStart> = {}): SessionStart {
  return {
    kind: 'session-start',
    session,
    group: 'g',
    tenant: 't',
    keyDigest: `digest of ${session}`,
    at: 1,
    data: '{}',
    ...parts,
  }
}

const end = (session: string, at = 2): JournalEntry => ({ kind: 'session-end', session, at, why: 'ended' })
const node = (session: string, seq: number): JournalEntry => nodeEntry({ rollout: session, attempt: 0, seq })

/** A run that these entries were written to, one transaction each list. */
function written(...lists: readonly (readonly JournalEntry[])[]) {
  const folder = temporaryFolder()
  for (const entries of lists) applyAll(folder.path, entries)
  const reader = RunReader.open(folder.path)
  return {
    sessions: reader.sessions,
    reader,
    [Symbol.dispose]: () => {
      reader[Symbol.dispose]()
      folder[Symbol.dispose]()
    },
  }
}

/** As it is read without its tokens. */
function bareOf(recorded: MessageNode): NodeWithoutTokens {
  const { tokens, ...bare } = recorded
  return { ...bare, lacksTokens: bare.call !== undefined && tokens === undefined }
}

test('sessions are read back with all their records', () => {
  const recorded = Array.from({ length: 40 }, (_, seed) => randomSession({ seed, gaps: seed % 2 === 0 }))
  using run = written(recorded.flatMap(sessionEntries))
  for (const { session, nodes, rewards } of recorded) {
    expect(run.sessions.session(session.id)).toEqual(session)
    expect(run.sessions.sessionByKeyDigest(session.keyDigest)).toEqual(session)
    expect(Array.from(run.sessions.nodesOf(session.id))).toEqual(nodes)
    expect(Array.from(run.sessions.bareNodesOf(session.id))).toEqual(nodes.map(bareOf))
    for (const each of nodes) expect(run.sessions.bareNode(session.id, each.seq)).toEqual(bareOf(each))
    expect(run.sessions.lastSeq(session.id)).toBe(nodes.at(-1)?.seq)
    expect(run.sessions.rewardsOf(session.id)).toEqual(rewards)
    const gap = nodes.find(({ call, tokens }) => call && !tokens)
    expect(run.sessions.firstWithoutTokens(session.id)).toBe(gap?.seq)
  }
  const open = recorded.filter(({ session }) => !session.end)
  expect(Array.from(run.sessions.each({ state: 'open' }))).toEqual(open.map(({ session }) => session))
  expect(run.reader.integrity()).toEqual([])
  expect(run.sessions.session('nobody')).toBeUndefined()
  expect(run.sessions.sessionByKeyDigest('nothing')).toBeUndefined()
})

test('sessions are listed by tenant, group and state, in order, page by page', () => {
  const starts = Array.from({ length: 30 }, (_, index) =>
    // Names in no order: the list is in that of the starts.
    start(`${(index * 7) % 30}`, { tenant: index % 2 === 0 ? 'a' : 'b', group: `g${index % 5}` }),
  )
  const ends = starts.filter((_, index) => index % 3 === 0).map(({ session }) => end(session))
  using run = written([...starts, ...ends])
  const expected = (fits: (index: number) => boolean) =>
    starts.filter((_, index) => fits(index)).map(({ session }) => session)
  const listed = (query: Parameters<typeof run.sessions.each>[0]) =>
    Array.from(run.sessions.each(query), ({ id }) => id)
  expect(listed({})).toEqual(expected(() => true))
  expect(listed({ tenant: 'a' })).toEqual(expected((index) => index % 2 === 0))
  expect(listed({ group: 'g2' })).toEqual(expected((index) => index % 5 === 2))
  expect(listed({ tenant: 'b', group: 'g2' })).toEqual(expected((index) => index % 2 === 1 && index % 5 === 2))
  expect(listed({ state: 'ended', tenant: 'b' })).toEqual(expected((index) => index % 6 === 3))
  expect(listed({ state: 'open', tenant: 'a' })).toEqual(expected((index) => index % 2 === 0 && index % 3 !== 0))
  expect(listed({ state: 'open', group: 'g1' })).toEqual(expected((index) => index % 5 === 1 && index % 3 !== 0))
  expect(listed({ tenant: 'c' })).toEqual([])

  const first = run.sessions.sessions({ state: 'open', limit: 6 }).map(({ id }) => id)
  const more = run.sessions.sessions({ state: 'open', after: first.at(-1) ?? '', limit: 100 }).map(({ id }) => id)
  expect(first).toHaveLength(6)
  expect([...first, ...more]).toEqual(listed({ state: 'open' }))
  expect(run.sessions.sessions({ after: 'nobody', limit: 5 })).toEqual([])
})

test('a list longer than a page is read completely', () => {
  using run = written(Array.from({ length: 600 }, (_, index) => start(`s${index}`)))
  expect(Array.from(run.sessions.each({ state: 'open' }), ({ id }) => id)).toEqual(
    Array.from({ length: 600 }, (_, index) => `s${index}`),
  )
})

test('large session metadata is stored out of line', () => {
  const data = JSON.stringify({ metadata: { note: 'x'.repeat(100_000) } })
  using run = written([start('s', { data })])
  expect(run.sessions.session('s')?.data).toEqual(JSON.parse(data))
  expect(run.reader.integrity()).toEqual([])
})

test('the last reward of a node and of the session counts', () => {
  const reward = (rewarded: number | null, value: number): JournalEntry => ({
    kind: 'reward',
    session: 's',
    node: rewarded,
    value,
    at: value,
  })
  using run = written(
    [start('s'), node('s', 0), node('s', 1), reward(null, 1), reward(1, 2)],
    [reward(1, 3), end('s'), reward(null, 0.5)],
  )
  expect(run.sessions.rewardsOf('s')).toEqual([
    { node: null, value: 0.5, at: 0.5 },
    { node: 1, value: 3, at: 3 },
  ])
  expect(run.reader.integrity()).toEqual([])
})

test('the first start and the first end count; later ones are kept as events', () => {
  using run = written([start('s'), start('s', { tenant: 'thief' }), end('s', 5), end('s', 6), end('x', 7)])
  expect(run.sessions.session('s')).toMatchObject({ tenant: 't', end: { at: 5, why: 'ended' } })
  expect(Array.from(run.reader.events(), ({ name, rollout, at }) => [name, rollout, at])).toEqual([
    ['duplicate-session', 's', 1],
    ['duplicate-session-end', 's', 6],
    ['session-unknown', 'x', 7],
  ])
})

test('integrity() reports records that a session must not have', () => {
  const problems = (...entries: readonly JournalEntry[]): string[] => {
    using run = written(entries)
    return run.reader.integrity()
  }
  expect(problems(start('s'), node('s', 0), end('s'), ...rolloutEntries(1))).toEqual([])
  expect(problems(start('s'), node('s', 0), end('s'), node('s', 1))).toEqual([
    'session s goes on with message 1 after its end',
  ])
  expect(problems(start('s'), end('s'), node('s', 0))).toEqual(['session s goes on with message 0 after its end'])
  expect(problems(start('s'), node('s', 0), node('s', 2))).toEqual([
    'rollout s attempt 0: 2 messages are numbered 0 to 2',
    'rollout s attempt 0: message 2 has lost its parent',
  ])
  expect(problems(node('s', 0))).toEqual(['messages of rollout s attempt 0, which never started'])
  const later: JournalEntry = { ...node('s', 0), parent: 1 } as JournalEntry
  expect(problems(start('s'), later, node('s', 1))).toEqual([
    'rollout s attempt 0: message 0 follows message 1, which came later',
  ])
  const reward = { kind: 'reward', session: 's', value: 1, at: 1 } as const
  expect(problems({ ...reward, node: null })).toEqual(['a reward for session s, which never started'])
  // The message was said, but not sampled.
  expect(problems(start('s'), node('s', 0), { ...reward, node: 0 })).toEqual([
    'session s has a reward for message 0, which was not sampled',
  ])
})

test.each(['{', '5', 'null', '[]', '"x"'])('the stored start record %s is refused', (data) => {
  using run = written([start('s', { data }), start('t')])
  const damaged = 'the start record of session s cannot be read; if it matters, restore the run from a copy'
  expect(() => run.sessions.session('s')?.data).toThrow(damaged)
  expect(run.sessions.session('t')?.data).toEqual({})
  expect(run.reader.integrity()).toEqual([damaged])
})
