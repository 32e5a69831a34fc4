import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import {
  defineEnvironment,
  evaluate,
  RunReader,
  z,
  type EvaluateOptions,
  type RolloutRecord,
  type Summary,
} from 'millrace'
import { calls, ScriptedBackend, temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { fakeProcess } from '../support/cli/fake-terminal.ts'
import { main } from '../../src/cli/main.ts'
import { blobOutOfReach } from '../support/store/damage.ts'

/** Looks something up, then answers: two calls, a dollar each. */
const environment = (groupPolicy: 'keep' | 'void' = 'keep') =>
  defineEnvironment({
    name: 'looking',
    task: z.object({ row: z.number() }),
    tasks: () => [{ row: 0 }, { row: 1 }, { row: 2 }],
    prompt: ({ task, rollout }) => `${task.row} ${rollout.sample}`,
    tools: { look: { parameters: z.object({}), resume: 'reuse', run: () => 'here' } },
    reward: () => 1,
    groupPolicy,
  })

interface Launch extends Summary {
  readonly records: readonly RolloutRecord[]
  readonly asked: number
  readonly progressed: number
}

/** One rollout after the other. Stopped as it asks for the model the time `hangAt`, which is not answered. */
async function sit(folder: string, options: Partial<EvaluateOptions> = {}, hangAt = Infinity): Promise<Launch> {
  let asked = 0
  const backend = new ScriptedBackend(({ messages, signal }) => {
    if (asked === hangAt) {
      evaluation.stop()
      return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
    }
    asked += 1
    const message = messages.length === 1 ? calls({ look: {} }) : ({ role: 'assistant', content: 'found' } as const)
    const finishReason = messages.length === 1 ? 'tool_calls' : 'stop'
    return { message, finishReason, usage: { calls: 1, input: 0, cachedInput: 0, output: 1, reasoning: 0 } }
  })
  const evaluation = evaluate({
    environment: environment(),
    model: { name: 'scripted', backends: [{ url: 'http://scripted.invalid' }], price: { input: 0, output: 1_000_000 } },
    backends: { scripted: [backend] },
    concurrency: 1,
    preflight: false,
    ...options,
    run: { root: join(folder, '..'), name: 'looking', ...options.run },
  })
  const records = await Array.fromAsync(evaluation)
  return { ...(await evaluation.summary()), records, asked, progressed: evaluation.progress().ended }
}

function damage(folder: string, sql: string): void {
  using database = new DatabaseSync(join(folder, 'journal.sqlite'))
  expect(database.prepare(sql).run().changes).toBeGreaterThan(0)
}

function abandoned(folder: string): unknown[] {
  using reader = RunReader.open(folder)
  return Array.from(reader.events('attempt-abandoned'), ({ rollout, attempt, data }) => ({ rollout, attempt, data }))
}

async function show(folder: string, ...words: readonly string[]): Promise<string> {
  const parts = fakeProcess({ env: { MILLRACE_RUNS: join(folder, '..') } })
  expect(await main(['show', 'looking', ...words], parts)).toBe(0)
  return parts.stdout.text
}

const why = { why: expect.stringContaining('cannot be read') as unknown }

test.each([
  ['is no JSON', `UPDATE rollout SET record = '{"id":' WHERE id = '0-0'`],
  ['is bytes', "UPDATE rollout SET record = CAST(record AS BLOB) WHERE id = '0-0'"],
  ['is null', "UPDATE rollout SET record = 'null' WHERE id = '0-0'"],
  ['is empty', "UPDATE rollout SET record = '{}' WHERE id = '0-0'"],
  ['is in a file that is gone', "UPDATE rollout SET record = 'blob:0000' WHERE id = '0-0'"],
])('a result whose record %s still counts, is reported, and leaves the other results alone', async (_what, sql) => {
  await using runs = await temporaryRuns()
  const folder = join(runs.root, 'looking')
  expect(await sit(folder, {}, 3)).toMatchObject({ end: 'stopped', rollouts: 1 })
  damage(folder, sql)
  const second = await sit(folder)
  expect(second).toMatchObject({ end: 'complete', state: 'complete', rollouts: 2, scored: 2, asked: 3, cost: 4 })
  expect(second.unreadable).toEqual({ rollouts: 1, ids: ['0-0'] })
  expect(second.records.map(({ id, attempt }) => [id, attempt])).toEqual([
    ['1-0', 1],
    ['2-0', 1],
  ])
  expect(second.progressed).toBe(3)
  using reader = RunReader.open(folder)
  expect(reader.counts()).toMatchObject({ ended: 3, attempts: 3, outcomes: { completed: 3 } })
})

test('the cost of a result whose record is damaged still counts', async () => {
  await using runs = await temporaryRuns()
  const folder = join(runs.root, 'looking')
  await sit(folder, {}, 2)
  damage(folder, "UPDATE rollout SET record = '{' WHERE id = '0-0'")
  expect(await sit(folder, { maxCostUsd: 2 })).toMatchObject({ end: 'max_cost', asked: 0 })
  expect(await sit(folder, { maxCostUsd: 2, run: { retryFailed: true } })).toMatchObject({ end: 'max_cost', asked: 0 })
  // Nobody knows any more what it was.
  damage(folder, "UPDATE node SET meta = '{' WHERE rollout = '0-0' AND seq = 1")
  expect(await sit(folder, { maxCostUsd: 2 })).toMatchObject({ end: 'max_cost', asked: 2 })
})

test('a result whose record is temporarily unreadable is not reported as damaged', async () => {
  await using runs = await temporaryRuns()
  const folder = join(runs.root, 'looking')
  await sit(folder, {}, 3)
  damage(folder, "UPDATE rollout SET record = 'blob:0000' WHERE id = '0-0'")
  {
    using _unreachable = blobOutOfReach(folder)
    await expect(sit(folder)).rejects.toMatchObject({ code: 'ENXIO' })
  }
  expect(await sit(folder)).toMatchObject({ end: 'complete', unreadable: { rollouts: 1 } })
})

test.each([
  ['a message is no JSON', `UPDATE node SET message = '{"role":"us' WHERE rollout = '1-0' AND seq = 1`],
  ['a message is a number', "UPDATE node SET message = '5' WHERE rollout = '1-0' AND seq = 1"],
  ['a message has no role', "UPDATE node SET message = '{}' WHERE rollout = '1-0' AND seq = 0"],
  ['a message is in a file that is gone', "UPDATE node SET message = 'blob:0000' WHERE rollout = '1-0' AND seq = 1"],
  ['a message is missing', "DELETE FROM node WHERE rollout = '1-0' AND seq = 0"],
  ['what a message cost is no JSON', "UPDATE node SET meta = '{' WHERE rollout = '1-0' AND seq = 1"],
])('an interrupted rollout of which %s starts over', async (_what, sql) => {
  await using runs = await temporaryRuns()
  const folder = join(runs.root, 'looking')
  expect(await sit(folder, {}, 3)).toMatchObject({ unfinished: { attempts: 1, costUsd: 1 } })
  damage(folder, sql)
  const second = await sit(folder)
  expect(second).toMatchObject({ end: 'complete', rollouts: 3, scored: 3, asked: 4, discarded: { attempts: 1 } })
  expect(second.records.map(({ id, attempt }) => [id, attempt])).toEqual([
    ['1-0', 2],
    ['2-0', 1],
  ])
  const { costUsd, costUnknown } = second.discarded
  expect({ costUsd, costUnknown }).toEqual(
    sql.includes('meta') ? { costUsd: 0, costUnknown: 1 } : { costUsd: 1, costUnknown: 0 },
  )
  expect(abandoned(folder)).toEqual([{ rollout: '1-0', attempt: 1, data: why }])
  expect(await show(folder, '1-0')).toMatch(/^attempts +1 aborted: .* of 1-0 cannot be read;.*\n +2 completed$/m)
  const shown = JSON.parse(await show(folder, '1-0', '--json')) as { attempts: object[] }
  expect(shown.attempts).toMatchObject([{ attempt: 1, givenUp: why.why }, { attempt: 2 }])
})

test.each([
  ['record is no JSON', `UPDATE attempt SET record = '{"id":' WHERE rollout = '0-0'`],
  ['record is bytes', "UPDATE attempt SET record = CAST(record AS BLOB) WHERE rollout = '0-0'"],
  ['record is empty', "UPDATE attempt SET record = '{}' WHERE rollout = '0-0'"],
  ['message is no JSON', `UPDATE node SET message = '{"role":"us' WHERE rollout = '0-0' AND seq = 1`],
  ['last message is missing', "DELETE FROM node WHERE rollout = '0-0' AND seq = 3"],
])('a group member whose %s starts over, and the whole group is scored', async (_what, sql) => {
  await using runs = await temporaryRuns()
  const folder = join(runs.root, 'looking')
  const options = { environment: environment('void'), attempts: 2, limit: 1 }
  expect(await sit(folder, options, 3)).toMatchObject({ rollouts: 0, unfinished: { attempts: 2 } })
  damage(folder, sql)
  const second = await sit(folder, options)
  expect(second).toMatchObject({ end: 'complete', rollouts: 2, scored: 2, asked: 3, cost: 4 })
  expect(second.discarded).toMatchObject({ attempts: 1, costUsd: 2 })
  expect(second.records.map(({ id, attempt }) => [id, attempt])).toEqual([
    ['0-0', 2],
    ['0-1', 1],
  ])
  expect(abandoned(folder)).toEqual([{ rollout: '0-0', attempt: 1, data: why }])
  expect(await show(folder, '0-0')).toMatch(/^attempts +1 aborted: .*0-0 .*cannot be read;/m)
  const shown = JSON.parse(await show(folder, '0-0', '--json')) as { attempts: object[] }
  expect(shown.attempts).toMatchObject([{ attempt: 1, givenUp: why.why }, { attempt: 2 }])
})

test('a finished member that waits for its group is shown as waiting', async () => {
  await using runs = await temporaryRuns()
  const folder = join(runs.root, 'looking')
  const options = { environment: environment('void'), attempts: 2, limit: 1 }
  const { unfinished } = await sit(folder, options, 3)
  expect(unfinished).toMatchObject({ attempts: 2, waitForGroup: 1 })
  const shown = await show(folder, '0-0')
  expect(shown).toContain('· completed · reward 1.000 · waits for its group\n')
  expect(shown).toMatch(/^waiting +it has ended and waits for the rest of its group;/m)
  expect(JSON.parse(await show(folder, '0-0', '--json'))).toMatchObject({ reward: 1, waitsFor: 'group' })
  expect(await show(folder, '0-1')).not.toContain('waits for its group')
  expect(await show(folder)).toMatch(/open +2 attempts not ended yet \(1 only waiting for the group\): /)
  await sit(folder, options)
  expect(await show(folder, '0-0')).not.toContain('waits')
  expect(JSON.parse(await show(folder, '0-0', '--json'))).not.toHaveProperty('waitsFor')
})

test('the cost of a superseded attempt counts although its record is damaged', async () => {
  await using runs = await temporaryRuns()
  const folder = join(runs.root, 'looking')
  const options: Partial<EvaluateOptions> = {
    environment: defineEnvironment({
      ...environment(),
      reward: ({ rollout }) => {
        if (rollout.attempt === 1) throw new Error('no')
        return 1
      },
      tools: { look: { parameters: z.object({}), run: () => 'here' } },
    }),
    limit: 1,
  }
  expect(await sit(folder, options)).toMatchObject({ end: 'complete', outcomes: { reward_error: 1 } })
  expect(await sit(folder, { ...options, run: { retryFailed: true } })).toMatchObject({ end: 'complete', scored: 1 })
  damage(folder, "UPDATE attempt SET record = '{' WHERE rollout = '0-0' AND attempt = 1")
  const third = await sit(folder, options)
  expect(third).toMatchObject({ end: 'complete', scored: 1, asked: 0, discarded: { attempts: 1, costUsd: 2 } })
})

test.each([
  ['its', "rollout = '0-0'"],
  ["a child's", "rollout LIKE '0-0.%'"],
])('a rollout that only lacks its score starts over if %s last message is missing', async (_whose, which) => {
  await using runs = await temporaryRuns()
  const folder = join(runs.root, 'looking')
  const options: Partial<EvaluateOptions> = {
    environment: defineEnvironment({
      ...environment(),
      tools: {
        look: {
          parameters: z.object({}),
          resume: 'rerun',
          run: async (_, { child }) => (await child({ prompt: 'Look.', tools: [] })).answer,
        },
      },
      reward: ({ rollout }) => {
        if (rollout.attempt === 1) throw new Error('no')
        return 1
      },
    }),
    limit: 1,
  }
  expect(await sit(folder, options)).toMatchObject({ end: 'complete', outcomes: { reward_error: 1 } })
  damage(folder, `DELETE FROM node WHERE position = (SELECT max(position) FROM node WHERE ${which})`)
  const second = await sit(folder, { ...options, run: { retryFailed: true } })
  expect(second.records).toMatchObject([{ id: '0-0', attempt: 2, reward: 1 }])
  expect(abandoned(folder)).toEqual([{ rollout: '0-0', attempt: 1, data: why }])
})
