import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import {
  defineEnvironment,
  evaluate,
  findRuns,
  jsonl,
  RunReader,
  z,
  type EvaluateOptions,
  type Progress,
  type RunInfo,
  type Summary,
} from 'millrace'
import { runScripted, ScriptedBackend, temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'

interface Launch {
  readonly root: string
  readonly rows?: number
  /** Tasks from a file instead. */
  readonly file?: string
  readonly limit?: number
  readonly run?: EvaluateOptions['run']
  /** Stopped, as by Ctrl-C twice, once this many have ended. */
  readonly stopAfter?: number
}

/** The tasks that ran, and what was said about the run. */
async function sit({
  root,
  rows = 6,
  file,
  limit,
  run,
  stopAfter = Infinity,
}: Launch): Promise<{ ran: number[]; progress: Progress; summary: Summary } & RunInfo> {
  let asked = 0
  // What comes after those that end is in the middle of its first turn when the run is stopped.
  const backend = new ScriptedBackend(({ signal }) => {
    asked += 1
    if (asked <= stopAfter) return 'done'
    return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
  })
  const evaluation = evaluate({
    environment: defineEnvironment({
      name: 'rows',
      task: z.object({ row: z.number() }),
      tasks: () => (file === undefined ? Array.from({ length: rows }, (_, row) => ({ row })) : jsonl(file)),
      prompt: ({ task }) => `row ${task.row}`,
      reward: () => 1,
    }),
    model: { name: 'scripted', backends: [{ url: 'http://scripted.invalid' }] },
    backends: { scripted: [backend] },
    concurrency: 1,
    preflight: false,
    ...(limit !== undefined && { limit }),
    run: { root, ...run },
  })
  const ran: number[] = []
  for await (const { task } of evaluation) {
    ran.push(task.index)
    if (ran.length === stopAfter) break
  }
  return { ran, progress: evaluation.progress(), summary: await evaluation.summary(), ...(await evaluation.started) }
}

async function states(root: string): Promise<string[]> {
  const { runs } = await findRuns(root)
  return runs.map(({ run }) => run.state)
}

test('a launch with a smaller limit runs its tasks and leaves the run open; the first command completes it', async () => {
  await using runs = await temporaryRuns()
  const { root } = runs
  const first = await sit({ root, stopAfter: 2 })
  const some = await sit({ root, limit: 4 })
  expect(some.name).toBe(first.name)
  expect(some.notices.join('\n')).toContain('covers all tasks: this launch runs the first 4 and leaves the run open')
  expect(some.summary).toMatchObject({ end: 'complete', state: 'unfinished', missingTasks: 0 })
  expect(await states(root)).toEqual(['unfinished'])
  const again = await sit({ root, limit: 4 })
  expect(again).toMatchObject({ name: first.name, ran: [] })
  const rest = await sit({ root })
  expect(rest.name).toBe(first.name)
  expect([...first.ran, ...some.ran, ...rest.ran]).toEqual([0, 1, 2, 3, 4, 5])
  expect(await states(root)).toEqual(['complete'])
  // Looking at less of a complete run opens nothing.
  const less = await sit({ root, limit: 3, run: { name: first.name } })
  expect(less.progress).toMatchObject({ ended: 6, total: { count: 6 } })
  expect(await states(root)).toEqual(['complete'])
})

test('the size of a run is that of its largest launch, also if that launch was interrupted', async () => {
  await using runs = await temporaryRuns()
  const { root } = runs
  const { name } = await sit({ root, limit: 2 })
  expect(await states(root)).toEqual(['complete'])
  const wider = await sit({ root, limit: 5, run: { name }, stopAfter: 1 })
  expect(wider.notices.join('\n')).toContain('continuing run')
  const narrow = await sit({ root, limit: 2, run: { name } })
  expect(narrow.notices.join('\n')).toContain(
    'covers 5 tasks: this launch runs the first 2 and leaves the run open; --limit 5',
  )
  expect(await states(root)).toEqual(['unfinished'])
  const rest = await sit({ root, limit: 5 })
  expect(rest.name).toBe(name)
  expect(await states(root)).toEqual(['complete'])
})

test('a limit beyond the last task means all tasks', async () => {
  await using runs = await temporaryRuns()
  const { root } = runs
  await sit({ root, stopAfter: 2 })
  await sit({ root, limit: 100 })
  expect(await states(root)).toEqual(['complete'])
})

test('missing tasks fail the launch after the other tasks have ended, and no result is lost', async () => {
  await using runs = await temporaryRuns()
  const { root } = runs
  const { name, folder } = await sit({ root, stopAfter: 4 })
  const shorter = sit({ root, rows: 3 })
  await expect(shorter).rejects.toThrow('the source of tasks ends after 3, but this run began with more tasks')
  await expect(shorter).rejects.toMatchObject({ code: 'run_mismatch', data: { task: 3 } })
  expect(await states(root)).toEqual(['unfinished'])
  expect(await sit({ root, rows: 3, limit: 3 })).toMatchObject({ name, ran: [] })
  expect(await sit({ root })).toMatchObject({ name, resumed: 4 })
  using reader = RunReader.open(folder)
  expect(reader.counts()).toMatchObject({ ended: 6, attempts: 6 })
})

test('a complete run stays complete if its tasks have changed', async () => {
  await using runs = await temporaryRuns()
  const { root } = runs
  const { name } = await sit({ root })
  await expect(sit({ root, rows: 5, run: { name } })).rejects.toMatchObject({ code: 'run_mismatch' })
  expect(await states(root)).toEqual(['complete'])
})

test('a launch that fails to start leaves a complete run complete, with the same number of tasks', async () => {
  await using runs = await temporaryRuns()
  const { root } = runs
  const { name } = await sit({ root, limit: 2 })
  const file = join(root, 'gone.jsonl')
  await expect(sit({ root, file, run: { name } })).rejects.toMatchObject({ code: 'file_not_found' })
  expect(await states(root)).toEqual(['complete'])
  const again = await sit({ root, limit: 2, run: { name } })
  expect(again.notices).toEqual([`run ${name} was complete: 2 rollouts had ended`])
  expect(await states(root)).toEqual(['complete'])
})

test('tasks that are missing before they began leave the run open, and a notice reports them', async () => {
  await using runs = await temporaryRuns()
  const { root } = runs
  const { name } = await sit({ root, stopAfter: 2 })
  const shorter = await sit({ root, rows: 5 })
  expect(shorter).toMatchObject({ name, ran: [2, 3, 4] })
  expect(shorter.notices.join('\n')).toContain(`run ${name} has 6 tasks and their source now has 5: `)
  expect(shorter.summary).toMatchObject({ end: 'complete', state: 'unfinished', missingTasks: 1 })
  expect(await states(root)).toEqual(['unfinished'])
  const restored = await sit({ root })
  expect(restored).toMatchObject({ name, ran: [5], summary: { state: 'complete', missingTasks: 0 } })
  expect(await states(root)).toEqual(['complete'])
})

test('tasks that are missing from a file leave the run open', async () => {
  await using runs = await temporaryRuns()
  const { root } = runs
  const file = join(root, 'tasks.jsonl')
  const lines = Array.from({ length: 6 }, (_, row) => JSON.stringify({ row }))
  await writeFile(file, lines.join('\n'))
  const { progress } = await sit({ root, file, stopAfter: 2 })
  expect(progress.total).toEqual({ count: 6, exact: true })
  await writeFile(file, lines.slice(0, 4).join('\n'))
  expect(await sit({ root, file })).toMatchObject({ ran: [2, 3], summary: { state: 'unfinished', missingTasks: 2 } })
})

test('a notice reports tasks that were added to the source, but not a larger limit', async () => {
  await using runs = await temporaryRuns()
  const { root } = runs
  const run = { name: 'grown' }
  await sit({ root, run, rows: 4, stopAfter: 2 })
  const added = await sit({ root, run, rows: 6 })
  expect(added.notices).toContain(
    'run grown began with 4 tasks and their source now has 6: the added tasks run too; --limit 4 (limit) leaves them out',
  )
  expect(added.ran).toEqual([2, 3, 4, 5])
  expect((await sit({ root, run, rows: 6 })).notices.join()).not.toContain('began with')
  const limited = { name: 'limited' }
  await sit({ root, run: limited, rows: 6, limit: 2 })
  expect((await sit({ root, run: limited, rows: 6, limit: 4 })).notices.join()).not.toContain('began with')
  expect((await sit({ root, run: limited, rows: 6 })).notices.join()).not.toContain('began with')
})

test('the summary names repeated task ids', async () => {
  const environment = (ids: readonly string[]) =>
    defineEnvironment({
      name: 'named',
      task: z.object({ id: z.string() }),
      tasks: () => ids.map((id) => ({ id })),
      taskId: ({ id }) => id,
      prompt: ({ task }) => task.id,
      reward: () => 1,
    })
  const repeated = await runScripted({ environment: environment(['b', 'a', 'b', 'c', 'a', 'a']), script: () => 'done' })
  expect(repeated.summary).toMatchObject({ rollouts: 6, repeatedTaskIds: ['b', 'a'] })
  const single = await runScripted({ environment: environment(['a', 'b']), script: () => 'done' })
  expect(single.summary.repeatedTaskIds).toEqual([])
})

test('a complete run that is launched again keeps its measured duration', async () => {
  await using runs = await temporaryRuns()
  const { root } = runs
  const run = { name: 'again' }
  const first = await sit({ root, run, rows: 3 })
  // The last line of progress and the results say the same.
  expect(first.progress.perSecond).toBe(first.summary.perSecond)
  const second = await sit({ root, run, rows: 3 })
  expect(second.ran).toEqual([])
  expect(second.summary.wallMs).toBeGreaterThan(Math.floor(first.summary.wallMs))
  expect(second.summary.perSecond).toBeGreaterThan(0)
})
