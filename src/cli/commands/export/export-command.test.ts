import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { expect, test } from 'vitest'
import { randomSession, sessionEntries } from '../../../../test/support/gateway/random-session.ts'
import { readBinaryRows, readJsonRows, readParquetRows } from '../../../../test/support/gateway/read-rows.ts'
import { temporaryRuns } from '../../../testing/index.ts'
import { applyAll } from '../../../../test/support/store/apply-entries.ts'
import { writeStoredRun } from '../../../../test/support/store/write-stored-run.ts'
import { fakeProcess } from '../../../../test/support/cli/fake-terminal.ts'
import { writeRun } from '../../../../test/support/cli/write-run.ts'
import { main } from '../../main.ts'

async function run(root: string, ...args: string[]) {
  const parts = fakeProcess({ env: { MILLRACE_RUNS: root } })
  const code = await main(['export', ...args], parts)
  return { code, stdout: parts.stdout.text, stderr: parts.stderr.text }
}

/** A gateway's run of twelve sessions, if not told otherwise; in the twelfth a reply has no tokens. */
function writeGatewayRun(root: string, sessions = 12): void {
  const created = { name: 'gateway', configDigest: 'digest', config: { kind: 'gateway' }, provenance: {} }
  const seeds = Array.from({ length: sessions }, (_, seed) => seed)
  const entriesOf = (seed: number) => sessionEntries(randomSession({ seed, samples: 8, gaps: seed === 11 }))
  writeStoredRun(join(root, 'gateway'), created, seeds.flatMap(entriesOf))
}

test('a gateway run is exported as rows, to stdout or a file, in either format', async () => {
  await using runs = await temporaryRuns()
  writeGatewayRun(runs.root)
  const { code, stdout } = await run(runs.root, 'gateway', '--include-discarded')
  expect(code).toBe(0)
  const rows = readJsonRows(Buffer.from(stdout))
  expect(rows.at(-1)).toMatchObject({ kind: 'end', sessions: 12 })
  expect(rows.some((row) => row.kind === 'interaction' && row['discarded'] !== null)).toBe(true)

  const file = join(runs.root, 'train.rows')
  const args = ['--rows', 'merged', '--format', 'binary', '--group', 'group-3', '--discount', '0.5', '-o', file]
  const written = await run(runs.root, 'gateway', ...args)
  const merged = readBinaryRows(readFileSync(file))
  const { sideRows, laterTurns, driftedTurns, driftedTokens } = (merged.at(-1) ?? {}) as Readonly<
    Record<string, unknown>
  >
  const drift = `${String(driftedTurns)} of ${String(laterTurns)} later turns drifted, ${String(driftedTokens)} tokens affected`
  const among = `${String(sideRows)} rows of side calls, ${drift}`
  const stderr = `wrote ${merged.length - 1} rows of 2 sessions (${among}) to ${file}\n`
  expect(written).toEqual({ code: 0, stdout: '', stderr })
  expect(merged.at(-1)).toMatchObject({ kind: 'end', sessions: 2 })
  expect(merged.slice(0, -1).every((row) => row['group'] === 'group-3' && row.kind === 'merged')).toBe(true)
})

test('rows are exported as a Parquet file', async () => {
  await using runs = await temporaryRuns()
  writeGatewayRun(runs.root)
  const file = join(runs.root, 'train.parquet')
  const args = ['gateway', '--rows', 'merged', '--skip-without-tokens']
  const { code, stdout, stderr } = await run(runs.root, ...args, '--format', 'parquet', '-o', file)
  expect({ code, stdout }).toEqual({ code: 0, stdout: '' })
  expect(stderr).toContain(' of 12 sessions ')
  const inJson = readJsonRows(Buffer.from((await run(runs.root, ...args)).stdout))
  const { rows, end } = await readParquetRows(readFileSync(file))
  expect(rows.map(({ session }) => session)).toEqual(inJson.slice(0, -1).map(({ session }) => session))
  expect(end).toEqual(inJson.at(-1))
})

test('rows of side calls can be left out, and another main tree can be chosen', async () => {
  await using runs = await temporaryRuns()
  writeGatewayRun(runs.root)
  const rootsOf = async (...args: string[]) => {
    const { stdout } = await run(runs.root, 'gateway', '--session', 'session-0', ...args)
    const rows = readJsonRows(Buffer.from(stdout)).filter((row) => row.kind === 'interaction')
    return [...new Set(rows.map((row) => (row['tree'] as { readonly root: number }).root))]
  }
  const all = await rootsOf()
  expect(all.length).toBeGreaterThan(1)
  const [longest, ...none] = await rootsOf('--trees', 'main')
  expect(none).toEqual([])
  expect(longest).not.toBe(all[0])
  expect(await rootsOf('--trees', 'main', '--main-tree', 'first')).toEqual([all[0]])
  expect(await rootsOf('--trees', 'main', '--main-tree', 'all')).toEqual(all)
})

test('tenants are exported separately, also with equal group names', async () => {
  await using runs = await temporaryRuns()
  writeGatewayRun(runs.root)
  const blue = randomSession({ seed: 17, samples: 2, group: 'group-3', tenant: 'blue' })
  applyAll(join(runs.root, 'gateway'), sessionEntries(blue))
  const sessions = async (...args: string[]) =>
    readJsonRows(Buffer.from((await run(runs.root, 'gateway', ...args)).stdout)).at(-1)?.['sessions']
  expect(await sessions()).toBe(13)
  expect(await sessions('--tenant', 'blue')).toBe(1)
  expect(await sessions('--group', 'group-3', '--tenant', 'default')).toBe(2)
  expect(await run(runs.root, 'gateway', '--group', 'group-3')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('tenants blue and default each have a group group-3; choose one with --tenant'),
  })
  expect(await run(runs.root, 'gateway', '--tenant', 'red')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('there is no session of tenant red'),
  })
})

test('a refused export gives the reason, and does not change the file', async () => {
  await using runs = await temporaryRuns()
  writeGatewayRun(runs.root)
  const file = join(runs.root, 'train.rows')
  writeFileSync(file, 'yesterday')
  const refused = await run(runs.root, 'gateway', '--rows', 'merged', '-o', file)
  expect(refused.code).toBe(2)
  expect(refused.stderr).toMatch(/session-11 has a reply without .* --skip-without-tokens/)
  expect(await run(runs.root, 'gateway', '--session', 'nobody', '-o', file)).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('there is no session or rollout nobody'),
  })
  expect(readFileSync(file, 'utf8')).toBe('yesterday')
  const { code, stderr } = await run(runs.root, 'gateway', '--rows', 'merged', '--skip-without-tokens', '-o', file)
  expect(code).toBe(0)
  const end = readJsonRows(readFileSync(file)).at(-1)
  expect(end).toMatchObject({ kind: 'end', sessions: 12 })
  expect(stderr).toMatch(/of 12 sessions \(.* side calls, .* drifted, .* affected\) to /)
  expect(stderr).toContain(`, ${String(end?.['withoutTokens'])} replies without tokens left out, `)
})

test('at most twenty damaged sessions are named', async () => {
  await using runs = await temporaryRuns()
  writeGatewayRun(runs.root, 21)
  using database = new DatabaseSync(join(runs.root, 'gateway', 'journal.sqlite'))
  const named = async () => (await run(runs.root, 'gateway')).stderr.trimEnd().split('\n')
  database.exec("UPDATE session SET data = '{' WHERE id <> 'session-20'")
  const twenty = await named()
  expect(twenty).toHaveLength(20)
  expect(twenty.at(-1)).toMatch(/^session session-19 is damaged/)
  database.exec("UPDATE session SET data = '{'")
  expect(await named()).toEqual([...twenty, 'further damage is not shown: see the rows of kind "damaged"'])
})

test('a damaged session affects only itself, and is reported at the end', async () => {
  await using runs = await temporaryRuns()
  writeGatewayRun(runs.root)
  {
    using database = new DatabaseSync(join(runs.root, 'gateway', 'journal.sqlite'))
    database.exec(`UPDATE node SET message = '{"role":"us' WHERE rollout = 'session-3' AND seq = 1`)
  }
  const { code, stdout, stderr } = await run(runs.root, 'gateway')
  expect(code).toBe(1)
  expect(stderr).toMatch(/^session session-3 is damaged, .*: message 1 of session-3 cannot be read; .* \(.*JSON/)
  const rows = readJsonRows(Buffer.from(stdout))
  expect(rows.at(-1)).toMatchObject({ kind: 'end', sessions: 12, damagedSessions: 1 })
  const file = join(runs.root, 'rows.jsonl')
  const written = await run(runs.root, 'gateway', '-o', file)
  expect(written.code).toBe(1)
  expect(written.stderr).toMatch(/\nwrote \d+ rows of 12 sessions \(\d+ rows of side calls, 1 damaged, .*\) to /)
  expect(readFileSync(file, 'utf8')).toBe(stdout)
  expect(await run(runs.root, 'gateway', '--session', 'session-2')).toMatchObject({ code: 0, stderr: '' })
  expect(await run(runs.root, 'gateway', '--session', 'session-3')).toMatchObject({
    code: 1,
    stdout: '',
    stderr: expect.stringContaining('message 1 of session-3 cannot be read'),
  })
})

test('a damaged rollout affects only itself, and is reported at the end', async () => {
  await using runs = await temporaryRuns()
  const rollouts = [0, 1, 2].map((index) => ({ record: { id: `${index}-0`, task: { index, id: `task-${index}` } } }))
  writeRun({ root: runs.root, name: 'nightly', rollouts })
  {
    using database = new DatabaseSync(join(runs.root, 'nightly', 'journal.sqlite'))
    database.exec(`UPDATE rollout SET record = '{"id":' WHERE id = '1-0'`)
  }
  const { code, stdout, stderr } = await run(runs.root, 'nightly')
  expect(code).toBe(1)
  expect(stderr).toMatch(/^rollout 1-0 is damaged, and left out: the result of rollout 1-0 cannot be read; .* \(.*JSON/)
  const lines = stdout.trimEnd().split('\n')
  expect(lines.map((line) => JSON.parse(line) as object)).toMatchObject([
    { id: '0-0', reward: 1 },
    { kind: 'damaged', id: '1-0', reward: null },
    { id: '2-0', reward: 1 },
  ])
  const file = join(runs.root, 'out.jsonl')
  const written = await run(runs.root, 'nightly', '-o', file)
  expect(written).toMatchObject({ code: 1, stderr: expect.stringContaining('wrote 3 rollouts (1 damaged) to ') })
  expect(readFileSync(file, 'utf8')).toBe(stdout)
})

test('flags that do not apply to the run are refused', async () => {
  await using runs = await temporaryRuns()
  writeGatewayRun(runs.root)
  writeRun({ root: runs.root, name: 'nightly', rollouts: [{ record: { id: '0-0' } }] })
  const gateway = await run(runs.root, 'gateway', '--tokens')
  expect(gateway).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('--tokens is for rollouts as they are recorded'),
  })
  const ofTenant = await run(runs.root, 'nightly', '--rows', 'interactions', '--tenant', 'ours')
  expect(ofTenant).toMatchObject({ code: 2, stderr: expect.stringContaining('run nightly holds rollouts') })
  const binary = await run(runs.root, 'nightly', '--format', 'binary')
  expect(binary).toMatchObject({ code: 2, stderr: expect.stringContaining('add --rows merged') })
  expect(await run(runs.root, 'nightly', '--format', 'jsonl')).toMatchObject({ code: 0 })
})

test('--tokens for a run without tokens gives a notice about how to record them', async () => {
  await using runs = await temporaryRuns()
  writeRun({ root: runs.root, name: 'nightly', rollouts: [{ record: {} }] })
  const asked = await run(runs.root, 'nightly', '--tokens')
  expect(asked).toMatchObject({ code: 0, stderr: expect.stringContaining('was made without --tokens') })
  expect(asked.stderr).toContain('`eval --tokens` makes a run that has them')
  expect(await run(runs.root, 'nightly')).toMatchObject({ code: 0, stderr: '' })
  const rows = await run(runs.root, 'nightly', '--rows', 'merged')
  expect(rows).toMatchObject({ code: 2, stderr: expect.stringContaining('was made without --tokens') })
})

test('the rows written to a file are counted, and a replaced file is reported', async () => {
  await using runs = await temporaryRuns()
  writeRun({ root: runs.root, name: 'nightly', rollouts: [{ record: { id: '0-0' } }] })
  const file = join(runs.root, 'out.jsonl')
  const stderr = `wrote 1 rollout to ${file}\n`
  expect(await run(runs.root, 'nightly', '-o', file)).toEqual({ code: 0, stdout: '', stderr })
  const { stdout } = await run(runs.root, 'nightly')
  expect(readFileSync(file, 'utf8')).toBe(stdout)
  const again = await run(runs.root, 'nightly', '-o', file)
  expect(again.stderr).toBe(`wrote 1 rollout to ${file}, replacing its former content\n`)
  expect(readFileSync(file, 'utf8')).toBe(stdout)
})
