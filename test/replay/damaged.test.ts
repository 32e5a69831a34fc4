import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { defineEnvironment, evaluate, replayRollout, replayRun, rescoreRun, z } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { describe, expect, test } from 'vitest'
import { fakeProcess } from '../support/cli/fake-terminal.ts'
import { main } from '../../src/cli/main.ts'
import { blobOutOfReach } from '../support/store/damage.ts'
import { openRun, storeRun } from '../support/replay/stored-runs.ts'

const base = {
  name: 'numbers',
  task: z.object({ number: z.number() }),
  tasks: () => [{ number: 0 }, { number: 1 }, { number: 2 }],
  prompt: ({ task }: { task: { number: number } }) => `Number ${task.number}`,
}
const alone = defineEnvironment({ ...base, reward: { right: ({ answer }) => answer === 'right' } })
const ranked = defineEnvironment({
  ...base,
  reward: {
    right: ({ answer }) => answer === 'right',
    rank: { group: ({ members }) => members.map(({ sample }) => sample) },
  },
})
const voiding = defineEnvironment({ ...alone, groupPolicy: 'void' })

function damage(folder: string, sql: string): void {
  using database = new DatabaseSync(join(folder, 'journal.sqlite'))
  expect(database.prepare(sql).run().changes).toBeGreaterThan(0)
}

const messageIsNone = `UPDATE node SET message = '{"role":"us' WHERE rollout = '1-0' AND seq = 1`

describe.each([
  ['message is no JSON', messageIsNone],
  ['message is missing', "DELETE FROM node WHERE rollout = '1-0' AND seq = 1"],
  ['record is in a file that is gone', "UPDATE rollout SET record = 'blob:0000' WHERE id = '1-0'"],
])('a rollout whose %s', (_what, sql) => {
  test('is left out of the scores and named', async () => {
    await using runs = await temporaryRuns()
    const { folder } = await storeRun(runs.root, { environment: alone, attempts: 2, script: () => 'right' })
    damage(folder, sql)
    using reader = openRun(runs.root)
    const rescoring = await rescoreRun(reader, { environment: alone })
    const lines = await Array.fromAsync(rescoring)
    expect(lines.map(({ id, after }) => [id, after])).toEqual([
      ['0-0', 1],
      ['0-1', 1],
      ['1-1', 1],
      ['2-0', 1],
      ['2-1', 1],
    ])
    expect(rescoring.summary()).toMatchObject({
      rollouts: 5,
      after: { scored: 5 },
      unreadable: { rollouts: 1, ids: ['1-0'] },
    })
  })

  test('does not affect the replay of other rollouts', async () => {
    await using runs = await temporaryRuns()
    const { folder } = await storeRun(runs.root, { environment: alone, script: () => 'right' })
    damage(folder, sql)
    using reader = openRun(runs.root)
    const reports = await Array.fromAsync(replayRun(reader, { environment: alone }))
    expect(reports.map(({ rollout, verdict }) => [rollout, verdict])).toEqual([
      ['0-0', 'identical'],
      ['1-0', 'unreadable'],
      ['2-0', 'identical'],
    ])
    expect(reports[1]).toMatchObject({
      attempt: 1,
      outcome: null,
      why: expect.stringMatching(/1-0 .*cannot be read;/) as unknown,
    })
    await expect(replayRollout(reader, '1-0', { environment: alone })).rejects.toMatchObject({ code: 'store_failed' })
  })
})

test.each([
  ['that are scored together', ranked],
  ['that lose their rewards together', voiding],
])('the other members of a group %s get no score without the damaged member', async (_which, environment) => {
  await using runs = await temporaryRuns()
  const { folder } = await storeRun(runs.root, { environment, attempts: 2, script: () => 'right' })
  damage(folder, messageIsNone)
  using reader = openRun(runs.root)
  const rescoring = await rescoreRun(reader, { environment })
  const other = (await Array.fromAsync(rescoring)).find(({ id }) => id === '1-1')
  const message = 'its group cannot be scored again: its rollout 1-0 cannot be read'
  expect(other).toMatchObject({
    after: null,
    rewards: { right: { score: 1 } },
    error: { code: 'store_failed', message },
  })
  expect(rescoring.summary()).toMatchObject({ after: { scored: 4 }, failures: [{ message, count: 1 }] })

  const reports = await Array.fromAsync(replayRun(reader, { environment }))
  expect(reports.map(({ verdict }) => verdict)).toEqual([
    'identical',
    'identical',
    'unreadable',
    'skipped',
    'identical',
    'identical',
  ])
  const why = expect.stringMatching(/^its group cannot be scored again: .* of 1-0 cannot be read/) as unknown
  expect(reports[3]).toMatchObject({ rollout: '1-1', why })
})

test('a temporarily unreadable record is not reported as damaged', async () => {
  await using runs = await temporaryRuns()
  const { folder } = await storeRun(runs.root, { environment: alone, script: () => 'right' })
  damage(folder, "UPDATE rollout SET record = 'blob:0000' WHERE id = '1-0'")
  using _unreachable = blobOutOfReach(folder)
  using reader = openRun(runs.root)
  await expect(Array.fromAsync(await rescoreRun(reader, { environment: alone }))).rejects.toMatchObject({
    code: 'ENXIO',
  })
  await expect(Array.fromAsync(replayRun(reader, { environment: alone }))).rejects.toMatchObject({ code: 'ENXIO' })
})

const source = `
import { defineEnvironment, z } from 'millrace'
export default defineEnvironment({
  name: 'sums',
  task: z.object({ a: z.number() }),
  tasks: () => Array.from({ length: 4 }, (_, a) => ({ a })),
  prompt: ({ task }) => \`What is \${task.a} + 1?\`,
  reward: { right: () => 1 },
})
`

test('the commands skip damaged rollouts, name them, and fail', async () => {
  await using folder = await temporaryRuns()
  const root = join(folder.root, 'runs')
  const environment = join(folder.root, 'sums.ts')
  await writeFile(environment, source)
  await evaluate({ environment, model: 'sim', run: { root, name: 'sums' } }).summary()
  damage(join(root, 'sums'), messageIsNone)
  const command = async (...words: readonly string[]) => {
    const parts = { ...fakeProcess({ env: { MILLRACE_RUNS: root } }), cwd: folder.root }
    const code = await main(words, parts)
    return { code, stdout: parts.stdout.text, stderr: parts.stderr.text }
  }
  const named = 'left out, because it cannot be read: 1-0; why:  npx millrace'

  const rescored = await command('rescore', 'sums', '--out', 'lines.jsonl')
  expect(rescored).toMatchObject({ code: 1, stderr: `wrote 3 rollouts to lines.jsonl\n${named} show sums 1-0\n` })
  expect(rescored.stdout).toContain('1 rollout left out: damaged\n')
  expect((await readFile(join(folder.root, 'lines.jsonl'), 'utf8')).trimEnd().split('\n')).toHaveLength(3)
  const scores = (await command('rescore', 'sums', '--json')).stdout.trimEnd().split('\n')
  expect(scores).toHaveLength(4)
  const unreadable = { rollouts: 1, ids: ['1-0'] }
  expect(JSON.parse(scores.at(-1) ?? '')).toMatchObject({ type: 'summary', rollouts: 3, unreadable })

  const replayed = await command('replay', 'sums', '--all')
  expect(replayed).toEqual({
    code: 1,
    stdout: '3 rollouts: 3 identical, 0 different; 1 left out: damaged\n',
    stderr: `${named} replay sums 1-0\n`,
  })
  const reports = (await command('replay', 'sums', '--all', '--json')).stdout.trimEnd().split('\n')
  expect(JSON.parse(reports[1] ?? '')).toMatchObject({ rollout: '1-0', verdict: 'unreadable' })
  const counts = { rollouts: 3, identical: 3, different: 0, skipped: 0 }
  expect(JSON.parse(reports.at(-1) ?? '')).toEqual({ type: 'summary', ...counts, unreadable })
})
