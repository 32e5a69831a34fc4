import { rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import {
  defineEnvironment,
  forkRollout,
  jsonl,
  replayRollout,
  replayRun,
  rescoreRun,
  z,
  type Environment,
  type RescoredRollout,
  type RescoreSummary,
  type RunReader,
  type Summary,
  type TaskInput,
} from 'millrace'
import { ScriptedBackend, temporaryRuns } from 'millrace/testing'
import { describe, expect, test } from 'vitest'
import { openRun, storeRun } from '../support/replay/stored-runs.ts'

interface Row {
  readonly question: string
  readonly target: number
}

/** Its tasks are asked for with `tasks`; the schema adds what a row leaves out. */
function environmentOf(tasks: () => TaskInput): Environment {
  return defineEnvironment({
    name: 'targets',
    task: z.object({ question: z.string(), target: z.number(), unit: z.string().default('km') }),
    tasks,
    prompt: ({ task }) => `${task.question} (${task.unit})`,
    reward: ({ task, answer }) => answer === `${task.target} ${task.unit}`,
  })
}

/** Three tasks that are never the same twice. */
function* drawn(): Generator<Row> {
  for (let index = 0; index < 3; index += 1) {
    const target = Math.random()
    yield { question: `say ${target}`, target }
  }
}

const rows: readonly Row[] = [1, 2, 3].map((target) => ({ question: `say ${target}`, target }))
const generated = environmentOf(drawn)
const listed = environmentOf(() => rows)

/** A run in which every answer is right, but for that of the second task. */
async function storeAnswers(root: string, environment: Environment): Promise<void> {
  await storeRun(root, {
    environment,
    script: ({ messages, sessionId }) =>
      sessionId === '1-0' ? 'no' : String(messages[0]?.content).replace(/^say (.*) \((.*)\)$/, '$1 $2'),
  })
}

async function rescored(
  reader: RunReader,
  environment: Environment,
): Promise<{ lines: RescoredRollout[]; summary: RescoreSummary }> {
  const rescoring = await rescoreRun(reader, { environment })
  const lines = await Array.fromAsync(rescoring)
  return { lines, summary: rescoring.summary() }
}

/** A fork of rollout 2-0 whose answer is wrong. */
async function forkWrongly(reader: RunReader, root: string, environment: Environment): Promise<Summary> {
  const fork = await forkRollout(reader, {
    rollout: '2-0',
    turn: 0,
    environment,
    preflight: false,
    backends: { scripted: [new ScriptedBackend(() => 'no')] },
    run: { root, name: 'forked' },
  })
  return await fork.summary()
}

const scores = (lines: readonly RescoredRollout[]) => lines.map(({ id, before, after }) => [id, before, after])
const asTheyWere = [
  ['0-0', 1, 1],
  ['1-0', 0, 0],
  ['2-0', 1, 1],
]

describe('generated tasks', () => {
  test('are rescored with the rows stored in the run', async () => {
    await using runs = await temporaryRuns()
    await storeAnswers(runs.root, generated)
    using reader = openRun(runs.root)
    const { lines, summary } = await rescored(reader, generated)
    expect(scores(lines)).toEqual(asTheyWere)
    expect(summary).toMatchObject({ withoutTask: 0, withStoredTask: 3, after: { scored: 3 }, notices: [] })
  })

  test('are replayed with the stored rows', async () => {
    await using runs = await temporaryRuns()
    await storeAnswers(runs.root, generated)
    using reader = openRun(runs.root)
    const reports = await Array.fromAsync(replayRun(reader, { environment: generated }))
    expect(reports.map(({ verdict }) => verdict)).toEqual(['identical', 'identical', 'identical'])
  })

  test('are forked with the stored row, which the new run stores too', async () => {
    await using runs = await temporaryRuns()
    await storeAnswers(runs.root, generated)
    using reader = openRun(runs.root)
    expect(await forkWrongly(reader, runs.root, generated)).toMatchObject({
      end: 'complete',
      rollouts: 1,
      score: { mean: 0 },
    })
    using forked = openRun(runs.root, 'forked')
    expect(forked.task(2)).toEqual(reader.task(2))
    expect(forked.rollout('2-0')?.messages[0]).toEqual(reader.rollout('2-0')?.messages[0])
  })
})

describe('listed tasks', () => {
  test('that no longer exist are rescored with the stored rows', async () => {
    await using runs = await temporaryRuns()
    await storeAnswers(runs.root, listed)
    using reader = openRun(runs.root)
    const { lines, summary } = await rescored(
      reader,
      environmentOf(() => rows.slice(0, 1)),
    )
    expect(scores(lines)).toEqual(asTheyWere)
    expect(summary).toMatchObject({ withoutTask: 0, withStoredTask: 2 })
  })

  test('that no longer exist are replayed and forked with the stored rows', async () => {
    await using runs = await temporaryRuns()
    await storeAnswers(runs.root, listed)
    using reader = openRun(runs.root)
    const none = environmentOf(() => [])
    expect(await replayRollout(reader, '2-0', { environment: none })).toMatchObject({ verdict: 'identical' })
    expect(await forkWrongly(reader, runs.root, none)).toMatchObject({ end: 'complete', rollouts: 1 })
  })

  test('whose file no longer exists are rescored with the stored rows', async () => {
    await using runs = await temporaryRuns()
    const file = join(runs.root, 'tasks.jsonl')
    await writeFile(file, rows.map((row) => `${JSON.stringify(row)}\n`).join(''))
    const environment = environmentOf(() => jsonl(file))
    await storeAnswers(runs.root, environment)
    await rm(file)
    using reader = openRun(runs.root)
    expect(scores((await rescored(reader, environment)).lines)).toEqual(asTheyWere)
  })

  test('whose rows have changed are not rescored', async () => {
    await using runs = await temporaryRuns()
    await storeAnswers(runs.root, listed)
    using reader = openRun(runs.root)
    const corrected = environmentOf(() => [rows[0], { question: 'say 2', target: 20 }, rows[2]])
    const { lines, summary } = await rescored(reader, corrected)
    expect(lines[1]).toMatchObject({ after: null, error: { code: 'run_mismatch' } })
    expect(lines[1]?.error?.message).toContain('task 1 (1) has changed since the run was made')
    expect(summary).toMatchObject({ withoutTask: 1, withStoredTask: 0, after: { scored: 2 } })
  })
})

describe('a stored row that cannot be used', () => {
  test('because the run has none is reported as missing', async () => {
    await using runs = await temporaryRuns()
    await storeAnswers(runs.root, generated)
    {
      using database = new DatabaseSync(join(runs.root, 'stored', 'journal.sqlite'))
      database.exec('DELETE FROM task_row')
    }
    using reader = openRun(runs.root)
    const { lines, summary } = await rescored(reader, generated)
    expect(lines[0]).toMatchObject({ after: null, error: { code: 'run_mismatch' } })
    expect(lines[0]?.error?.message).toMatch(
      /task 0 \(0\) has changed since .*, and the run, made by an earlier Millrace, does not keep its row/,
    )
    expect(summary.withoutTask).toBe(3)
  })

  test('because it does not match the schema is reported', async () => {
    await using runs = await temporaryRuns()
    await storeAnswers(runs.root, generated)
    using reader = openRun(runs.root)
    const stricter = defineEnvironment({
      name: 'targets',
      task: z.object({ question: z.string(), target: z.string() }),
      tasks: drawn,
      prompt: () => '',
      reward: () => 1,
    })
    const { lines } = await rescored(reader, stricter)
    expect(lines[0]?.error?.message).toMatch(/the stored row of task 0 \(0\) does not fit.*target/)
  })

  test('because it is damaged fails only its own rollouts', async () => {
    await using runs = await temporaryRuns()
    await storeAnswers(runs.root, generated)
    {
      using database = new DatabaseSync(join(runs.root, 'stored', 'journal.sqlite'))
      database.exec(`UPDATE task_row SET row = '{"no' WHERE digest = (SELECT digest FROM task WHERE number = 1)`)
    }
    using reader = openRun(runs.root)
    const { lines } = await rescored(reader, generated)
    expect(lines.map(({ after }) => after)).toEqual([1, null, 1])
    expect(lines[1]?.error?.message).toContain('the row of task 1 cannot be read')
    expect(reader.integrity()).toEqual([expect.stringContaining('the row of task 1 cannot be read')])
  })
})
