import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { expect, test } from 'vitest'
import { RunReader, runFiles } from '../store/index.ts'
import { exportRows, type ExportRowsOptions } from './export-rows.ts'
import { blobOutOfReach, damagePage } from '../../test/support/store/damage.ts'
import { temporaryFolder } from '../../test/support/store/fixtures.ts'
import { NaiveRows } from '../../test/support/gateway/naive-rows.ts'
import { type RandomSession, randomSession, sessionEntries } from '../../test/support/gateway/random-session.ts'
import { type ReadRow, readBinaryRows, readJsonRows } from '../../test/support/gateway/read-rows.ts'
import { applyAll } from '../../test/support/store/apply-entries.ts'

/** A run with these sessions in it. */
function stored(sessions: readonly RandomSession[]) {
  const folder = temporaryFolder()
  applyAll(folder.path, sessions.flatMap(sessionEntries))
  const reader = RunReader.open(folder.path)
  return {
    reader,
    path: folder.path,
    [Symbol.dispose]: () => {
      reader[Symbol.dispose]()
      folder[Symbol.dispose]()
    },
  }
}

async function exported(reader: RunReader, options: Partial<ExportRowsOptions>): Promise<Buffer> {
  const all = exportRows(reader, { rows: 'interactions', format: 'jsonl', ...options })
  return Buffer.concat(await Array.fromAsync(all))
}

const many = Array.from({ length: 60 }, (_, seed) => randomSession({ seed, tenant: seed % 4 === 0 ? 'other' : 'ours' }))
const sessionsOf = (rows: readonly ReadRow[]): unknown[] => [...new Set(rows.flatMap((row) => row['session'] ?? []))]

/** Arrays as JSON has them, so that rows of both forms can be compared. */
function plain(row: ReadRow): Record<string, unknown> {
  const entries = Object.entries(row).map(([name, value]) => {
    if (name === 'routedExperts') return [name, value && expertNumbers(value)]
    if (!ArrayBuffer.isView(value)) return [name, value]
    return [name, JSON.parse(JSON.stringify(Array.from(value as Float32Array)))]
  })
  return Object.fromEntries(entries) as Record<string, unknown>
}

function expertNumbers(value: unknown): number[] {
  if (value instanceof Uint8Array) return Array.from(value)
  const { dtype, data } = value as { dtype: string; data: string }
  expect(dtype).toBe('uint8')
  return Array.from(Buffer.from(data, 'base64'))
}

function trainedIn(row: ReadRow): number {
  const mask = row['mask'] as readonly number[] | undefined
  return mask?.filter((trained) => trained === 1).length ?? 0
}

function turnsOf(sessions: readonly RandomSession[]): ReturnType<NaiveRows['turns']> {
  const counts = sessions.map((session) => new NaiveRows(session, 1).turns())
  const total = (name: keyof ReturnType<NaiveRows['turns']>): number =>
    counts.reduce((sum, each) => sum + each[name], 0)
  return {
    laterTurns: total('laterTurns'),
    driftedTurns: total('driftedTurns'),
    driftedTokens: total('driftedTokens'),
  }
}

test.each(['interactions', 'merged'] as const)('%s are equal in both formats, row by row', async (rows) => {
  using run = stored(many)
  const options = { rows, include: 'discarded', discount: 0.9 } as const
  const fromJson = readJsonRows(await exported(run.reader, options))
  const fromBinary = readBinaryRows(await exported(run.reader, { ...options, format: 'binary' }))
  expect(fromBinary.map(plain)).toEqual(fromJson.map(plain))
  expect(fromJson.length).toBeGreaterThan(200)
  const end = fromJson.at(-1)
  const empty = fromJson.filter(({ kind }) => kind === 'empty')
  expect(empty.length).toBeGreaterThan(0)
  expect(end).toEqual({
    kind: 'end',
    sessions: many.length,
    rows: fromJson.length - 1 - empty.length,
    sideRows: fromJson.filter((row) => row['main'] === false).length,
    ...turnsOf(many),
    splitRows: fromJson.filter((row) => row['splitAt']).length,
    trainedTokens: fromJson.reduce((sum, row) => sum + trainedIn(row), 0),
    emptySessions: empty.length,
    damagedSessions: 0,
    withoutTokens: 0,
  })
  expect(sessionsOf(fromJson)).toEqual(many.map(({ session }) => session.id))
})

test('the arrays of the binary format equal the recorded ones, bit for bit', async () => {
  using run = stored(many)
  const rows = readBinaryRows(await exported(run.reader, { format: 'binary' }))
  const nodes = new Map(many.map(({ session, nodes: recorded }) => [session.id, recorded]))
  let compared = 0
  for (const row of rows) {
    if (row.kind !== 'interaction') continue
    const node = nodes.get(row['session'] as string)?.[row['node'] as number]
    expect(node?.tokens).toMatchObject({ promptIds: row['promptIds'], ids: row['ids'], logprobs: row['logprobs'] })
    compared += 1
  }
  expect(compared).toBeGreaterThan(200)
})

test('concatenated binary files can be read', async () => {
  using run = stored(many.slice(0, 12))
  const file = await exported(run.reader, { format: 'binary' })
  const twice = readBinaryRows(Buffer.concat([file, file]))
  expect(twice).toEqual([...readBinaryRows(file), ...readBinaryRows(file)])
})

test('an export may be of one session, one group or one tenant', async () => {
  using run = stored(many)
  const chosen = async (options: Partial<ExportRowsOptions>) =>
    sessionsOf(readJsonRows(await exported(run.reader, options)))
  const idsOf = (fits: (session: RandomSession['session']) => boolean) =>
    many.filter(({ session }) => fits(session)).map(({ session }) => session.id)
  expect(await chosen({ session: 'session-7' })).toEqual(['session-7'])
  expect(await chosen({ group: 'group-3' })).toEqual(idsOf(({ group }) => group === 'group-3'))
  expect(await chosen({ tenant: 'other' })).toEqual(idsOf(({ tenant }) => tenant === 'other'))
  expect(await chosen({ tenant: 'other', group: 'group-4' })).toEqual(
    idsOf(({ group, tenant }) => group === 'group-4' && tenant === 'other'),
  )
})

test('an unknown session, or one of another tenant, is refused before the first byte', async () => {
  using run = stored(many)
  const refused = { code: 'session_not_found', data: { status: 404 } }
  await expect(exported(run.reader, { session: 'nobody' })).rejects.toMatchObject(refused)
  await expect(exported(run.reader, { group: 'none' })).rejects.toMatchObject(refused)
  await expect(exported(run.reader, { session: 'session-4', tenant: 'ours' })).rejects.toMatchObject(refused)
  await expect(exported(run.reader, { session: 'a', group: 'b' })).rejects.toMatchObject({ code: 'usage' })
  await expect(exported(run.reader, { discount: 1.5 })).rejects.toThrow(/discount.*from 0 to 1, not 1.5/)
  await expect(exported(run.reader, { discount: Number.NaN })).rejects.toMatchObject({ code: 'usage' })
})

test('the export of a run without sessions has only an end row', async () => {
  using run = stored([])
  expect(readJsonRows(await exported(run.reader, {}))).toEqual([
    {
      kind: 'end',
      sessions: 0,
      rows: 0,
      sideRows: 0,
      emptySessions: 0,
      damagedSessions: 0,
      withoutTokens: 0,
      trainedTokens: 0,
      splitRows: 0,
      laterTurns: 0,
      driftedTurns: 0,
      driftedTokens: 0,
    },
  ])
})

test('training rows of a session with a gap are refused at the start, unless it is skipped', async () => {
  const gap = Array.from({ length: 20 }, (_, index) => randomSession({ seed: 100 + index, gaps: true }))
  using run = stored([...many, ...gap])
  const chunks = exportRows(run.reader, { rows: 'merged', format: 'jsonl' })
  await expect(chunks.next()).rejects.toMatchObject({ code: 'usage', data: { status: 409 } })
  const without = gap.flatMap(({ nodes }) => nodes.filter(({ call, tokens }) => call && !tokens))
  const rows = readJsonRows(await exported(run.reader, { rows: 'merged', skipWithoutTokens: true }))
  expect(rows.at(-1)).toMatchObject({ kind: 'end', sessions: 80, withoutTokens: without.length })
  const interactions = readJsonRows(await exported(run.reader, {}))
  // A reply without tokens does not hide the one before it.
  expect(interactions.at(-1)).toMatchObject({ withoutTokens: without.length, ...turnsOf([...many, ...gap]) })
  expect(interactions.filter((row) => row.kind === 'interaction' && row['ids'] === null)).toHaveLength(without.length)
})

test.each([
  ['message', "UPDATE node SET message = 'blob:0000'"],
  ['meta', "UPDATE node SET meta = '{'"],
  ['prompts', "UPDATE node SET prompt_ids = x'000000'"],
  ['tokens', "UPDATE node SET ids = 'blob:0000', logprobs = 'blob:0000'"],
])('a session with unreadable %s is named, and the other sessions are exported', async (_what, damage) => {
  using run = stored(many)
  const whole = { interactions: await exported(run.reader, {}), merged: await exported(run.reader, { rows: 'merged' }) }
  using database = new DatabaseSync(join(run.path, runFiles.database))
  database.exec(`${damage} WHERE rollout = 'session-7' AND sampled = 1`)
  database.exec("UPDATE session SET data = '{' WHERE id = 'session-9'")
  for (const rows of ['interactions', 'merged'] as const) {
    const damaged: string[] = []
    const onDamaged = (session: string): unknown => damaged.push(session)
    const found = readJsonRows(await exported(run.reader, { rows, onDamaged }))
    expect(damaged).toEqual(['session-7', 'session-9'])
    const others = (row: ReadRow): boolean => row.kind !== 'end' && !damaged.includes(row['session'] as string)
    expect(found.filter(others)).toEqual(readJsonRows(whole[rows]).filter(others))
    expect(found.filter((row) => row.kind === 'damaged')).toMatchObject([
      { session: 'session-7', group: 'group-0', error: { code: 'store_failed' } },
      { session: 'session-9', task: null, error: { code: 'store_failed' } },
    ])
    expect(found.at(-1)).toMatchObject({ kind: 'end', sessions: many.length, damagedSessions: 2 })
    expect(JSON.stringify(found), 'where the run lies is nothing for a client').not.toContain(run.path)
  }
  await expect(exported(run.reader, { session: 'session-7' })).rejects.toMatchObject({ code: 'store_failed' })
})

test('a session with any lost message gives no rows', async () => {
  const sessions = Array.from({ length: 6 }, (_, seed) => randomSession({ seed, samples: 4 }))
  using run = stored(sessions)
  using database = new DatabaseSync(join(run.path, runFiles.database))
  for (const { session, nodes, rewards } of sessions) {
    for (const { seq } of nodes) {
      // Nothing tells of the last one but a reward.
      if (seq === nodes.length - 1 && !rewards.some(({ node }) => node === seq)) continue
      const moveTo = (attempt: number): void =>
        database.exec(`UPDATE node SET attempt = ${attempt} WHERE rollout = '${session.id}' AND seq = ${seq}`)
      moveTo(1)
      for (const rows of ['interactions', 'merged'] as const) {
        const found = readJsonRows(await exported(run.reader, { rows }))
        expect(found.filter((row) => row['session'] === session.id)).toMatchObject([
          { kind: 'damaged', error: { message: expect.stringContaining(`message ${seq} of ${session.id} cannot`) } },
        ])
        expect(found.at(-1)).toMatchObject({ damagedSessions: 1 })
      }
      moveTo(0)
    }
  }
})

test.each([
  ['message', "UPDATE node SET message = 'blob:0000' WHERE rollout = 'session-7' AND sampled = 1"],
  ['tokens', "UPDATE node SET ids = 'blob:0000', logprobs = 'blob:0000' WHERE rollout = 'session-7' AND sampled = 1"],
  ['data', "UPDATE session SET data = 'blob:0000' WHERE id = 'session-7'"],
])('a session is not reported as damaged if its %s is temporarily unavailable', async (_what, outOfLine) => {
  using run = stored(many)
  using database = new DatabaseSync(join(run.path, runFiles.database))
  database.exec(outOfLine)
  using _unreachable = blobOutOfReach(run.path)
  const damaged: string[] = []
  const onDamaged = (session: string): unknown => damaged.push(session)
  await expect(exported(run.reader, { onDamaged })).rejects.toMatchObject({ code: 'ENXIO' })
  expect(damaged).toEqual([])
})

test('a session whose start is on a damaged page is named, and the others are exported', async () => {
  const noted = Array.from(many.slice(0, 20), (each, index) => {
    // In line, and longer than a page.
    const metadata = { notes: index === 7 ? 'x'.repeat(40_000) : '' }
    return { ...each, session: { ...each.session, data: { ...each.session.data, metadata } } }
  })
  using run = stored(noted)
  const whole = readJsonRows(await exported(run.reader, {}))
  damagePage(run.path, 'session', 'overflow')
  using reader = RunReader.open(run.path)
  const found = readJsonRows(await exported(reader, {}))
  expect(found.filter(({ kind }) => kind === 'damaged')).toMatchObject([{ session: 'session-7', group: 'group-0' }])
  const others = (row: ReadRow): boolean => row.kind !== 'end' && row['session'] !== 'session-7'
  expect(found.filter(others)).toEqual(whole.filter(others))
})

test('sessions whose rewards are on a damaged page are named, and the others are exported', async () => {
  const rewarded = Array.from({ length: 600 }, (_, seed) => {
    const rewards = [{ node: null, value: seed, at: 1 }]
    return { ...randomSession({ seed, samples: 1 }), rewards }
  })
  using run = stored(rewarded)
  const whole = readJsonRows(await exported(run.reader, {}))
  damagePage(run.path, 'reward', 'leaf')
  using reader = RunReader.open(run.path)
  const found = readJsonRows(await exported(reader, {}))
  const damaged = found.filter(({ kind }) => kind === 'damaged').map((row) => row['session'])
  expect(damaged.length).toBeGreaterThan(0)
  expect(damaged.length).toBeLessThan(rewarded.length)
  const others = (row: ReadRow): boolean => row.kind !== 'end' && !damaged.includes(row['session'])
  expect(found.filter(others)).toEqual(whole.filter(others))
  expect(found.at(-1)).toMatchObject({ kind: 'end', sessions: rewarded.length, damagedSessions: damaged.length })
})

test('chunks have a limited size, the event loop is not blocked, and a reader may stop', async () => {
  const long = Array.from({ length: 300 }, (_, seed) => randomSession({ seed, samples: 12 }))
  using run = stored(long)
  let turns = 0
  const count = (): void => {
    turns += 1
    timer = setImmediate(count)
  }
  let timer = setImmediate(count)
  const sizes: number[] = []
  for await (const chunk of exportRows(run.reader, { rows: 'interactions', format: 'jsonl' })) {
    sizes.push(chunk.byteLength)
  }
  clearImmediate(timer)
  expect(sizes.length).toBeGreaterThan(5)
  expect(Math.min(...sizes.slice(0, -1))).toBeGreaterThanOrEqual(64 * 1024)
  expect(Math.max(...sizes)).toBeLessThan(128 * 1024)
  expect(turns).toBeGreaterThan(0)

  for await (const chunk of exportRows(run.reader, { rows: 'merged', format: 'binary' })) {
    expect(Buffer.from(chunk).toString('latin1', 0, 8)).toBe('MILLROWS')
    break
  }
})
