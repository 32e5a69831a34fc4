import { readFile, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { expect, test } from 'vitest'
import { exportRows, type ExportRowsOptions } from '../../src/rows/index.ts'
import { RunReader, runFiles } from '../../src/store/index.ts'
import { runPython } from '../support/python.ts'
import { temporaryFolder } from '../support/store/fixtures.ts'
import { NaiveRows } from '../support/gateway/naive-rows.ts'
import { randomSession, sessionEntries } from '../support/gateway/random-session.ts'
import { type ReadRow, readJsonRows } from '../support/gateway/read-rows.ts'
import { applyAll } from '../support/store/apply-entries.ts'

const examples = join(import.meta.dirname, '..', '..', 'examples', 'python')

async function grpoStep(...files: readonly string[]): Promise<string> {
  return await runPython([join(examples, 'grpo_step.py'), ...files])
}

/** Sessions in groups of six, exported. */
async function exportedFiles(options: Pick<ExportRowsOptions, 'rows' | 'include'>) {
  const folder = temporaryFolder()
  const sessions = Array.from({ length: 36 }, (_, seed) =>
    randomSession({ seed, samples: 6, group: `group-${Math.floor(seed / 6)}` }),
  )
  applyAll(folder.path, sessions.flatMap(sessionEntries))
  using reader = RunReader.open(folder.path)
  const bytesOf = async (format: 'jsonl' | 'binary') =>
    Buffer.concat(await Array.fromAsync(exportRows(reader, { ...options, format })))
  const file = join(folder.path, 'train.rows')
  const lines = join(folder.path, 'train.jsonl')
  await writeFile(file, await bytesOf('binary'))
  await writeFile(lines, await bytesOf('jsonl'))
  return { file, lines, rows: readJsonRows(await bytesOf('jsonl')), [Symbol.dispose]: () => folder[Symbol.dispose]() }
}

test('the Python package reads an export in both forms', async () => {
  for (const rows of ['interactions', 'merged'] as const) {
    using files = await exportedFiles({ rows, include: 'discarded' })
    for (const file of [files.file, files.lines]) {
      const lines = (await runPython(['-m', 'millrace', file])).trimEnd().split('\n')
      const read = lines.map((line) => JSON.parse(line) as ReadRow)
      expect(read.map(withoutExperts)).toEqual(files.rows.map(withoutExperts))
      expect(read.map(expertNumbers)).toEqual(files.rows.map(expertNumbers))
    }
  }
})

test('the Python package reports a truncated file', async () => {
  using files = await exportedFiles({ rows: 'merged' })
  const whole = await readFile(files.file)
  await truncate(files.file, whole.byteLength - 3)
  await expect(runPython(['-m', 'millrace', files.file])).rejects.toThrow(
    /train\.rows: it ends in the middle of a row; export it again/,
  )
})

test('the Python GRPO step computes the advantages of an export', async () => {
  using files = await exportedFiles({ rows: 'merged' })
  const advantagesFile = `${files.file}.advantages`
  const printed = await grpoStep(files.file, advantagesFile)
  const step = JSON.parse(printed) as {
    readonly rows: number
    readonly tokens: number
    readonly groups: number
    readonly replies: number
    readonly lowestAdvantage: number
    readonly highestAdvantage: number
    readonly before: number
    readonly after: number
  }
  const rewarded = files.rows.filter((row) => row.kind === 'merged' && row['main'] && trainedSamples(row).length > 0)
  const expected = advantagesOf(rewarded).flat()
  const found = (await readAdvantages(advantagesFile)).flat()
  expect(step.rows).toBe(rewarded.length)
  expect(step.groups).toBe(new Set(rewarded.map((row) => row['group'])).size)
  expect(step.tokens).toBe(rewarded.reduce((sum, row) => sum + trainedTokens(row), 0))
  expect(found).toHaveLength(expected.length)
  for (const [index, advantage] of expected.entries()) expect(found[index]).toBeCloseTo(advantage, 9)
  expect(step).toMatchObject({
    replies: found.length,
    lowestAdvantage: Math.min(...found),
    highestAdvantage: Math.max(...found),
  })
  // One line, however many replies there are.
  expect(printed.length).toBeLessThan(500)
  expect(step.after).toBeLessThan(step.before)
})

async function readAdvantages(file: string): Promise<readonly (readonly number[])[]> {
  return JSON.parse(await readFile(file, 'utf8')) as readonly (readonly number[])[]
}

/** The advantages that come out of an export of these sessions; `damage` is SQL, done to the run before that. */
async function stepOver(
  sessions: readonly ReturnType<typeof randomSession>[],
  { damage = '', ...options }: Pick<ExportRowsOptions, 'include'> & { readonly damage?: string } = {},
): Promise<readonly (readonly number[])[]> {
  using folder = temporaryFolder()
  applyAll(folder.path, sessions.flatMap(sessionEntries))
  using database = new DatabaseSync(join(folder.path, runFiles.database))
  database.exec(damage)
  using reader = RunReader.open(folder.path)
  const file = join(folder.path, 'train.rows')
  const chunks = await Array.fromAsync(exportRows(reader, { rows: 'merged', format: 'binary', ...options }))
  await writeFile(file, Buffer.concat(chunks))
  const advantagesFile = join(folder.path, 'advantages.json')
  await grpoStep(file, advantagesFile)
  return await readAdvantages(advantagesFile)
}

test('a session without a reply counts as a member of its group', async () => {
  const sessions = [1, 1, 1, 0].map((value, seed) => {
    const { session, nodes } = randomSession({ seed, samples: 4, group: 'one' })
    return { session, nodes: value === 0 ? [] : nodes, rewards: [{ node: null, value, at: 1 }] }
  })
  const advantages = (await stepOver(sessions)).flat()
  expect(advantages.length).toBeGreaterThan(2)
  for (const advantage of advantages) expect(advantage).toBeCloseTo(0.25 / (Math.sqrt(3 / 16) + 1e-4), 9)
})

test('a session that is found damaged after its first rows is left out completely', async () => {
  const sessions = [1, 0, 5].map((value, seed) => {
    const { session, nodes } = randomSession({ seed, samples: 12, group: 'one' })
    const lastLost = nodes.findLastIndex(({ discarded, tokens }) => discarded && tokens)
    return { session, nodes: nodes.slice(0, lastLost + 1), rewards: [{ node: null, value, at: 1 }] }
  })
  // Lost samples come last in an export, and the tokens of this one are read for nothing else.
  const lost = sessions[2]?.nodes.at(-1)?.seq
  const damage = `UPDATE node SET ids = 'blob:0000' WHERE rollout = 'session-2' AND seq = ${lost}`
  const whole = await stepOver(sessions, { include: 'discarded' })
  const others = await stepOver(sessions.slice(0, 2), { include: 'discarded' })
  expect(whole.length).toBeGreaterThan(others.length)
  expect(await stepOver(sessions, { include: 'discarded', damage })).toEqual(others)
})

test('a reply is trained with its own return, also if the last reply has none', async () => {
  const sessions = [1, 0].map((value, seed) => {
    const { session, nodes } = randomSession({ seed: seed + 20, samples: 8, group: 'one' })
    const tree = new NaiveRows({ session, nodes, rewards: [] }, 1)
    const first = nodes.find((node) => node.call && tree.rootOf(node) === tree.mainRoot)?.seq ?? 0
    return { session, nodes, rewards: [{ node: first, value, at: 1 }] }
  })
  expect((await stepOver(sessions)).map((row) => row.map((advantage) => Math.sign(advantage)))).toEqual([[1], [-1]])
})

test('side calls are left out, also if they have rewards', async () => {
  const sessions = [1, 0].map((value, seed) => {
    const { session, nodes } = randomSession({ seed: seed + 20, samples: 12, group: 'one' })
    return { session, nodes, rewards: [{ node: null, value, at: 1 }] }
  })
  const naive = sessions.map((session) => ({ ...session, rows: new NaiveRows(session, 1) }))
  const withSide = naive.map(({ session, nodes, rewards, rows }) => {
    const side = nodes.find((node) => node.call && rows.rootOf(node) !== rows.mainRoot)
    expect(side).toBeDefined()
    return { session, nodes, rewards: [...rewards, { node: side?.seq ?? 0, value: 7, at: 1 }] }
  })
  expect(await stepOver(withSide)).toEqual(await stepOver(sessions))
})

test('a group of one session has zero advantages, whatever the rewards of its branches', async () => {
  const { session, nodes } = randomSession({ seed: 3, samples: 12, group: 'alone' })
  const replies = nodes.filter(({ call }) => call)
  const rewards = replies.map(({ seq }, index) => ({ node: seq, value: index % 2, at: 1 }))
  const advantages = (await stepOver([{ session, nodes, rewards }])).flat()
  expect(advantages.length).toBeGreaterThan(1)
  expect(new Set(advantages)).toEqual(new Set([0]))
})

test('the GRPO step names the rows it needs', async () => {
  using files = await exportedFiles({ rows: 'interactions' })
  await expect(grpoStep(files.file)).rejects.toMatchObject({
    code: 1,
    stderr: `${files.file} has interactions, not training rows; export with --rows merged\n`,
  })
})

test.each([
  ['millrace', ['-m', 'millrace']],
  ['grpo_step.py', [join(examples, 'grpo_step.py')]],
] as const)('%s prints its usage and reports unreadable files', async (name, program) => {
  using folder = temporaryFolder()
  expect(await runPython([...program, '--help'])).toContain(`${name} train.rows`)
  await expect(runPython(program)).rejects.toMatchObject({
    code: 2,
    stdout: expect.stringContaining('train.rows') as string,
  })
  const file = join(folder.path, 'notes.txt')
  await writeFile(file, 'what was said\n')
  await expect(runPython([...program, file])).rejects.toMatchObject({
    code: 1,
    stderr: expect.stringContaining(`${file}: line 1 is not a row as JSON\n`) as string,
  })
})

test('the tests of the Python package that need no server pass', async () => {
  const tests = join(import.meta.dirname, '..', '..', 'clients', 'python', 'tests', 'run.py')
  const names = ['test_rows', 'test_http', 'test_client', 'test_fleet']
  const printed = await runPython(['-X', 'dev', '-W', 'error', tests, ...names])
  expect(printed.trimEnd().split('\n').at(-1)).toMatch(/^[1-9]\d* passed, 0 failed$/)
})

interface Sample {
  readonly trains: boolean
  readonly start: number
  readonly count: number
  readonly return: number | null
}

function trainedSamples(row: ReadRow): Sample[] {
  return (row['samples'] as Sample[]).filter((each) => each.trains && each.count > 0 && each.return !== null)
}

/** Tokens without a finite log-probability are not trained. */
function trainedTokens(row: ReadRow): number {
  const mask = row['mask'] as number[]
  const masks = trainedSamples(row).map(({ start, count }) => mask.slice(start, start + count))
  return masks.flat().reduce((sum, each) => sum + each, 0)
}

function advantagesOf(rows: readonly ReadRow[]): number[][] {
  const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length
  const returnsOf = (row: ReadRow): number[] => trainedSamples(row).map((each) => Number(each.return))
  return rows.map((row) => {
    const ofGroup = rows.filter((other) => other['group'] === row['group'])
    const perSession = Object.values(Object.groupBy(ofGroup, (other) => String(other['session'])))
    const returns = perSession.map((own = []) => mean(own.flatMap(returnsOf)))
    const spread = Math.sqrt(mean(returns.map((each) => (each - mean(returns)) ** 2)))
    return returnsOf(row).map((each) => (spread > 1e-4 ? (each - mean(returns)) / (spread + 1e-4) : 0))
  })
}

function withoutExperts(row: ReadRow): Omit<ReadRow, 'routedExperts'> {
  const { routedExperts: _, ...rest } = row
  return rest
}

/** The export has them as text, the Python package prints nested numbers. */
function expertNumbers(row: ReadRow): unknown {
  const experts = row['routedExperts'] as { data: string } | unknown[] | null | undefined
  if (Array.isArray(experts)) return experts.flat(Infinity)
  return experts ? Array.from(Buffer.from(experts.data, 'base64')) : experts
}
