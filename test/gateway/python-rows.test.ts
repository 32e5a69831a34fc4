import { execFile } from 'node:child_process'
import { readFile, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { exportSessions, type ExportSessionsOptions } from '../../src/gateway/export/export-sessions.ts'
import { RunReader } from '../../src/store/index.ts'
import { applyAll } from '../store/_apply.ts'
import { temporaryFolder } from '../store/_fixtures.ts'
import { randomSession } from './_random-session.ts'
import { type ReadRow, readJsonRows } from './_read-rows.ts'
import { sessionEntries } from './_store-session.ts'

const run = promisify(execFile)
const examples = join(import.meta.dirname, '..', '..', 'examples', 'python')
const maxBuffer = 64 * 1024 * 1024

/** Without -S, with NumPy and PyTorch if they are installed; with it, the standard library alone. */
const pythons = [
  ['as it is installed', []],
  ['alone', ['-S']],
] as const

async function python(flags: readonly string[], script: string, ...args: readonly string[]): Promise<string> {
  try {
    // -B: no folder of compiled modules beside the examples.
    const { stdout } = await run('python3', [...flags, '-B', join(examples, script), ...args], { maxBuffer })
    return stdout
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
    throw new Error('the examples in examples/python need python3; install it, version 3.8 or later', { cause: error })
  }
}

/** Sessions in groups of six, exported. */
async function exportedFiles(options: Pick<ExportSessionsOptions, 'rows' | 'include'>) {
  const folder = temporaryFolder()
  const sessions = Array.from({ length: 36 }, (_, seed) =>
    randomSession({ seed, samples: 6, group: `group-${Math.floor(seed / 6)}` }),
  )
  applyAll(folder.path, sessions.flatMap(sessionEntries))
  using reader = RunReader.open(folder.path)
  const bytesOf = async (format: 'jsonl' | 'binary') =>
    Buffer.concat(await Array.fromAsync(exportSessions(reader, { ...options, format })))
  const file = join(folder.path, 'train.rows')
  await writeFile(file, await bytesOf('binary'))
  return { file, rows: readJsonRows(await bytesOf('jsonl')), [Symbol.dispose]: () => folder[Symbol.dispose]() }
}

test.each(pythons)('the reader in Python (%s) reads what was exported', async (_name, flags) => {
  for (const rows of ['interactions', 'merged'] as const) {
    using files = await exportedFiles({ rows, include: 'discarded' })
    const lines = (await python(flags, 'millrace_rows.py', files.file)).trimEnd().split('\n')
    const read = lines.map((line) => JSON.parse(line) as ReadRow)
    expect(read.map(withoutExperts)).toEqual(files.rows.map(withoutExperts))
    expect(read.map(expertNumbers)).toEqual(files.rows.map(expertNumbers))
  }
})

test('the reader in Python says when a file was cut off', async () => {
  using files = await exportedFiles({ rows: 'merged' })
  const whole = await readFile(files.file)
  await truncate(files.file, whole.byteLength - 3)
  await expect(python([], 'millrace_rows.py', files.file)).rejects.toThrow(/train\.rows was cut off; export it again/)
})

test.each(pythons)('the GRPO step in Python (%s) learns from what was exported', async (_name, flags) => {
  using files = await exportedFiles({ rows: 'merged' })
  const step = JSON.parse(await python(flags, 'grpo_step.py', files.file)) as {
    readonly rows: number
    readonly tokens: number
    readonly groups: number
    readonly advantages: readonly number[]
    readonly before: number
    readonly after: number
  }
  const rewarded = files.rows.filter((row) => row.kind === 'merged' && row['reward'] !== null)
  const expected = advantagesOf(rewarded)
  expect(step.rows).toBe(rewarded.length)
  expect(step.groups).toBe(new Set(rewarded.map((row) => row['group'])).size)
  expect(step.tokens).toBe(rewarded.flatMap((row) => row['mask'] as number[]).filter((trains) => trains === 1).length)
  expect(step.advantages).toHaveLength(expected.length)
  for (const [index, advantage] of expected.entries()) expect(step.advantages[index]).toBeCloseTo(advantage, 9)
  expect(step.after).toBeLessThan(step.before)
})

test('a group of one session has nothing to compare, however its branches did', async () => {
  using folder = temporaryFolder()
  const { session, nodes } = randomSession({ seed: 3, samples: 12, group: 'alone' })
  const replies = nodes.filter(({ call }) => call)
  const rewards = replies.map(({ seq }, index) => ({ node: seq, value: index % 2, at: 1 }))
  applyAll(folder.path, sessionEntries({ session, nodes, rewards }))
  using reader = RunReader.open(folder.path)
  const file = join(folder.path, 'train.rows')
  const chunks = await Array.fromAsync(exportSessions(reader, { rows: 'merged', format: 'binary' }))
  await writeFile(file, Buffer.concat(chunks))
  const step = JSON.parse(await python([], 'grpo_step.py', file)) as { readonly advantages: readonly number[] }
  expect(step.advantages.length).toBeGreaterThan(1)
  expect(new Set(step.advantages)).toEqual(new Set([0]))
})

test.each(['millrace_rows.py', 'grpo_step.py'])('%s says how it is used, and what it cannot read', async (script) => {
  using folder = temporaryFolder()
  expect(await python([], script, '--help')).toContain(`python3 ${script} train.rows`)
  await expect(python([], script)).rejects.toMatchObject({
    code: 2,
    stdout: expect.stringContaining('train.rows') as string,
  })
  const file = join(folder.path, 'train.jsonl')
  await writeFile(file, '{"kind":"end"}\n')
  await expect(python([], script, file)).rejects.toMatchObject({
    code: 1,
    stderr: `${file} is no file of rows; export with --format binary (JSON lines need no reader)\n`,
  })
})

function advantagesOf(rows: readonly ReadRow[]): number[] {
  const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length
  return rows.map((row) => {
    const ofGroup = rows.filter((other) => other['group'] === row['group'])
    const perSession = Object.values(Object.groupBy(ofGroup, (other) => String(other['session'])))
    const rewards = perSession.map((own = []) => mean(own.map((other) => Number(other['reward']))))
    const spread = Math.sqrt(mean(rewards.map((reward) => (reward - mean(rewards)) ** 2)))
    return spread > 1e-4 ? (Number(row['reward']) - mean(rewards)) / (spread + 1e-4) : 0
  })
}

function withoutExperts(row: ReadRow): Omit<ReadRow, 'routedExperts'> {
  const { routedExperts: _, ...rest } = row
  return rest
}

/** JSON lines have them as text, the binary form as numbers, nested if NumPy read them. */
function expertNumbers(row: ReadRow): unknown {
  const experts = row['routedExperts'] as { data: string } | unknown[] | null | undefined
  if (Array.isArray(experts)) return experts.flat(Infinity)
  return experts ? Array.from(Buffer.from(experts.data, 'base64')) : experts
}
