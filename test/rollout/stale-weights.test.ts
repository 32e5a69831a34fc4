import { join } from 'node:path'
import { defineEnvironment, evaluate, type EvaluateOptions, exportRows, RunReader, z } from 'millrace'
import { ScriptedBackend, temporaryRuns, type Script } from 'millrace/testing'
import { expect, test } from 'vitest'
import { readBinaryRows } from '../support/gateway/read-rows.ts'

/** Three turns. */
const environment = defineEnvironment({
  name: 'turns',
  task: z.object({ row: z.number() }),
  tasks: () => [{ row: 0 }],
  prompt: () => 'Begin.',
  update: ({ messages }) => (messages.length < 6 ? { messages: [{ role: 'user', content: 'Go on.' }] } : { end: true }),
  reward: () => 1,
})

/** The weights change between two turns of a conversation. */
const updating: (versions: readonly string[]) => Script =
  (versions) =>
  ({ messages }) => {
    const turn = (messages.length - 1) / 2
    return {
      message: { role: 'assistant', content: `turn ${turn}` },
      finishReason: 'stop',
      usage: { calls: 1, input: messages.length, cachedInput: 0, output: 2, reasoning: 0 },
      tokens: {
        promptIds: Int32Array.from(messages, (_, index) => index),
        ids: Int32Array.of(100 + turn, 200),
        logprobs: Float32Array.of(-0.5, -0.5),
        version: versions[turn] ?? '',
      },
    }
  }

async function outcomeOf(versions: readonly string[], options: Partial<EvaluateOptions>) {
  await using runs = await temporaryRuns()
  const backends = { scripted: [new ScriptedBackend(updating(versions))] }
  const run = { root: runs.root, name: 'run' }
  const model = { name: 'scripted', backends: [{ url: 'http://scripted.invalid' }] }
  const common = { environment, preflight: false, captureTokens: true, backends, run }
  const records = await Array.fromAsync(evaluate({ ...common, model, ...options }))
  using reader = RunReader.open(join(runs.root, 'run'))
  const file = Buffer.concat(await Array.fromAsync(exportRows(reader, { rows: 'merged', format: 'binary' })))
  return { record: records[0], rows: readBinaryRows(file).slice(0, -1) }
}

test.each([
  { versions: ['1', '2', '4'], maxVersionsBehind: 3, outcome: 'completed', turns: 3 },
  { versions: ['1', '2', '4'], maxVersionsBehind: 2, outcome: 'stale', turns: 3 },
  // The second turn shows that the first is too old: the third is not asked for.
  { versions: ['1', '4', '4'], maxVersionsBehind: 2, outcome: 'stale', turns: 2 },
  { versions: ['main', 'next', 'next'], maxVersionsBehind: 0, outcome: 'stale', turns: 2 },
  { versions: ['main', 'main', 'main'], maxVersionsBehind: 0, outcome: 'completed', turns: 3 },
])(
  'versions $versions with at most $maxVersionsBehind behind end as $outcome after $turns turns',
  async ({ versions, maxVersionsBehind, outcome, turns }) => {
    const { record, rows } = await outcomeOf(versions, { maxVersionsBehind })
    const isStale = outcome === 'stale'
    expect(record).toMatchObject({ outcome, turns, reward: isStale ? null : 1 })
    // Each turn is a row here, as its prompt does not repeat the one before it.
    expect(rows.map(({ kind }) => kind)).toEqual(isStale ? ['empty'] : ['merged', 'merged', 'merged'])
    expect(rows[0]).toMatchObject({ outcome, reward: isStale ? null : 1 })
  },
)

test('without the option old weights are only recorded', async () => {
  const { record, rows } = await outcomeOf(['1', '50', '99'], {})
  expect(record).toMatchObject({ outcome: 'completed', reward: 1 })
  const sampled = rows.map((row) => (row['versions'] as readonly { readonly version: string | null }[]).at(-1)?.version)
  expect(sampled).toEqual(['1', '50', '99'])
})
