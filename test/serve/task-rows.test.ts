import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { exportRollouts, forkRollout, replayRun, rescoreRun, RunReader } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { millrace } from '../support/cli/millrace-process.ts'
import { TestServer, wordEnvironment } from '../support/serve/test-server.ts'

const run = { name: 'served' }

function storedRows(root: string): unknown {
  using database = new DatabaseSync(join(root, 'served', 'journal.sqlite'), { readOnly: true })
  return database.prepare('SELECT count(*) AS n FROM task_row').get()?.['n']
}

test('a task in several requests is stored once, and shown and exported with each of its rollouts', async () => {
  await using runs = await temporaryRuns()
  {
    await using server = await TestServer.start(() => 'one', { run: { ...run, root: runs.root } })
    await server.post({ tasks: [{ word: 'one' }, { word: 'two' }] })
    await server.post({ task: { word: 'one' }, attempts: 2 })
  }
  expect(storedRows(runs.root)).toBe(2)
  using reader = RunReader.open(join(runs.root, 'served'))
  const words = ['one', 'two', 'one'].map((word) => ({ word }))
  expect(Array.from(reader.tasks(), ({ row }) => row)).toEqual(words)
  const lines = await Array.fromAsync(exportRollouts(reader, { format: 'jsonl' }))
  const exported = lines.map((line) => JSON.parse(line) as { id: string; task: { index: number }; taskRow: unknown })
  expect(exported).toHaveLength(4)
  for (const { task, taskRow } of exported) expect(taskRow).toEqual(words[task.index])
  const shown = await millrace({ cwd: runs.root }, 'show', join(runs.root, 'served'), '1-0')
  expect(shown.stdout).toMatch(/^1-0 .*\ntask {6}word: two\n\n▌ user\n/)
})

test('rollouts of a server are rescored and replayed with the rows of their requests', async () => {
  await using runs = await temporaryRuns()
  {
    await using server = await TestServer.start(() => 'one', { run: { ...run, root: runs.root } })
    await server.post({ tasks: [{ word: 'one' }, { word: 'two' }] })
    // More attempts than the server's own.
    await server.post({ task: { word: 'one' }, attempts: 3 })
  }
  using reader = RunReader.open(join(runs.root, 'served'))
  const rescoring = await rescoreRun(reader, {
    environment: { ...wordEnvironment, reward: ({ task }) => (task as { word: string }).word.length },
  })
  const lines = await Array.fromAsync(rescoring)
  expect(lines.map(({ id, before, after }) => [id, before, after])).toEqual([
    ['0-0', 1, 3],
    ['1-0', 0, 3],
    ['2-0', 1, 3],
    ['2-1', 1, 3],
    ['2-2', 1, 3],
  ])
  expect(rescoring.summary()).toMatchObject({ rollouts: 5, withoutTask: 0, withStoredTask: 5 })
  const reports = await Array.fromAsync(replayRun(reader, { environment: wordEnvironment }))
  expect(reports.map(({ verdict }) => verdict)).toEqual(Array.from({ length: 5 }, () => 'identical'))
  await expect(forkRollout(reader, { rollout: '0-0', turn: 0, environment: wordEnvironment })).rejects.toMatchObject({
    code: 'run_mismatch',
    message: expect.stringContaining('their sampling came with requests'),
  })
})

test('a task that cannot be read after a restart fails only its own rollouts', async () => {
  await using runs = await temporaryRuns()
  const options = { run: { ...run, root: runs.root } }
  {
    await using server = await TestServer.start(() => new Promise(() => {}), options)
    const body = { requestId: 'damaged', tasks: [{ word: 'one' }, { word: 'two' }], detached: true }
    expect((await server.post(body)).status).toBe(202)
  }
  {
    using database = new DatabaseSync(join(runs.root, 'served', 'journal.sqlite'))
    database.exec(`UPDATE task_row SET row = '{"wo' WHERE digest = (SELECT digest FROM task WHERE number = 1)`)
  }
  await using server = await TestServer.start(() => 'one', options)
  const text = await server.text('/v1/requests/damaged', { accept: 'application/x-ndjson' })
  const records = text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as { id: string; outcome: string; error?: { message: string } })
  expect(Object.fromEntries(records.map(({ id, outcome }) => [id, outcome]))).toEqual({
    '0-0': 'completed',
    '1-0': 'env_error',
  })
  expect(records.find(({ id }) => id === '1-0')?.error?.message).toContain('the row of task 1 cannot be read')
})
