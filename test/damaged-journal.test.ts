import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { defineEnvironment, evaluate, z, type RolloutRecord } from 'millrace'
import { ScriptedBackend, temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'

/** Stopped, as by Ctrl-C twice, in the middle of its second rollout if it is cut off. */
async function sit(root: string, { isCutOff = false } = {}): Promise<{ folder: string; records: RolloutRecord[] }> {
  let asked = 0
  const backend = new ScriptedBackend(({ signal }) => {
    asked += 1
    if (!isCutOff || asked === 1) return 'done'
    return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
  })
  const evaluation = evaluate({
    environment: defineEnvironment({
      name: 'rows',
      task: z.object({ row: z.number() }),
      tasks: () => [{ row: 0 }, { row: 1 }, { row: 2 }],
      prompt: ({ task }) => [
        { role: 'system', content: 'be brief' },
        { role: 'user', content: `row ${task.row}` },
      ],
      reward: () => 1,
    }),
    model: { name: 'scripted', backends: [{ url: 'http://scripted.invalid' }] },
    backends: { scripted: [backend] },
    concurrency: 1,
    preflight: false,
    run: { root },
  })
  const records: RolloutRecord[] = []
  for await (const record of evaluation) {
    records.push(record)
    if (isCutOff) break
  }
  return { folder: (await evaluation.started).folder, records }
}

test.each([
  ['is no JSON', "UPDATE node SET message = '{' WHERE rollout = '1-0'"],
  ['is missing', "DELETE FROM node WHERE rollout = '1-0' AND seq = 0"],
])('a rollout that was cut off starts over if a message of its journal %s', async (_what, sql) => {
  await using runs = await temporaryRuns()
  const { folder } = await sit(runs.root, { isCutOff: true })
  {
    using database = new DatabaseSync(join(folder, 'journal.sqlite'))
    expect(database.prepare(sql).run().changes).toBeGreaterThan(0)
  }
  const resumed = await sit(runs.root)
  expect(resumed.folder).toBe(folder)
  expect(resumed.records.map(({ id, attempt, outcome }) => [id, attempt, outcome])).toEqual([
    ['1-0', 2, 'completed'],
    ['2-0', 1, 'completed'],
  ])
})
