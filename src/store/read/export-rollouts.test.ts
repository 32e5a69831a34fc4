import { mkdirSync, readFileSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { expect, test } from 'vitest'
import type { CallRecord } from '../../schema/index.ts'
import { AttemptRecorder } from '../write/journal-client.ts'
import { exportRollouts } from './export-rollouts.ts'
import type { Journal, JournalEntry } from '../write/journal.ts'
import { runFiles } from '../run/run-folder.ts'
import { RunReader } from './run-reader.ts'
import { applyAll } from '../../../test/support/store/apply-entries.ts'
import { blobOutOfReach, damagePage, flipBlobs, unreadableBlob } from '../../../test/support/store/damage.ts'
import { nodeEntry, recordParts, rolloutEntries, temporaryFolder } from '../../../test/support/store/fixtures.ts'

test('the JSONL export equals rollouts.jsonl', async () => {
  using folder = temporaryFolder()
  applyAll(folder.path, [...rolloutEntries(1), ...rolloutEntries(2, { outcome: 'env_error' })])
  using reader = RunReader.open(folder.path)
  const lines = await Array.fromAsync(exportRollouts(reader, { format: 'jsonl' }))
  expect(lines.join('')).toBe(readFileSync(join(folder.path, runFiles.lines), 'utf8'))
})

test('each line holds the task row if the run keeps rows and the caller asks for them', async () => {
  using folder = temporaryFolder()
  const row = '{"question": "2+2", "target": 4.0}'
  applyAll(folder.path, [...rolloutEntries(1), ...rolloutEntries(2)])
  applyAll(folder.path, [{ kind: 'task', index: 2, id: 'two', digest: 'd2', row }])
  using reader = RunReader.open(folder.path)
  const [without, line = ''] = await Array.fromAsync(exportRollouts(reader, { format: 'jsonl' }))
  expect(line).toContain(`],"taskRow":${row}}`)
  expect(without).not.toContain('taskRow')
  // The file that grows while the run goes on does not repeat them.
  const bare = await Array.fromAsync(exportRollouts(reader, { format: 'jsonl', taskRows: false }))
  expect(bare.join('')).toBe(readFileSync(join(folder.path, runFiles.lines), 'utf8'))
})

test('an unreadable task row damages only the lines that would hold it', async () => {
  using folder = temporaryFolder()
  applyAll(folder.path, [...rolloutEntries(1), ...rolloutEntries(2)])
  applyAll(folder.path, [{ kind: 'task', index: 2, id: 'two', digest: 'd2', row: '{"target"' }])
  using reader = RunReader.open(folder.path)
  const damaged: string[] = []
  const onDamaged = (rollout: string): void => void damaged.push(rollout)
  const [whole = '', line = ''] = await Array.fromAsync(exportRollouts(reader, { format: 'jsonl', onDamaged }))
  expect(JSON.parse(whole)).toMatchObject({ id: '1-0', reward: 1 })
  const message = expect.stringContaining('the row of task 2 cannot be read')
  expect(JSON.parse(line)).toMatchObject({ kind: 'damaged', id: '2-0', reward: null, error: { message } })
  expect(damaged).toEqual(['2-0'])
  const bare = await Array.fromAsync(exportRollouts(reader, { format: 'jsonl', taskRows: false }))
  expect(JSON.parse(bare[1] ?? '')).toMatchObject({ id: '2-0', reward: 1 })
})

test('an export with tokens holds every node of the accepted attempt', async () => {
  using folder = temporaryFolder()
  const tokens = { ids: Int32Array.of(5, 6), logprobs: Float32Array.of(-0.5, -Infinity), version: '7' }
  const extra = { ...nodeEntry({ rollout: '1-0', seq: 2 }), ...tokens, promptIds: Int32Array.of(1) }
  applyAll(folder.path, [...rolloutEntries(1), extra])
  using reader = RunReader.open(folder.path)
  const [line] = await Array.fromAsync(exportRollouts(reader, { format: 'jsonl', tokens: true }))
  const parsed = JSON.parse(line ?? '') as { messages: unknown[]; nodes: Record<string, unknown>[] }
  expect(parsed.messages).toHaveLength(2)
  expect(parsed.nodes.map((node) => node['seq'])).toEqual([0, 1, 2])
  expect(parsed.nodes[0]).not.toHaveProperty('tokens')
  expect(parsed.nodes[2]?.['tokens']).toEqual({ promptIds: [1], ids: [5, 6], logprobs: [-0.5, null], version: '7' })
})

test('routed experts are read back unchanged and exported as base64 text', async () => {
  using folder = temporaryFolder()
  const small = { shape: [2, 1, 3], experts: Uint8Array.of(1, 2, 3, 4, 5, 6) }
  // Too long to be kept in line.
  const large = { shape: [100, 10, 200], experts: Int16Array.from({ length: 200_000 }, (_, index) => index % 300) }
  const recorded: JournalEntry[] = []
  const journal: Journal = {
    append: (entry) => void recorded.push(entry),
    appendAll: (entries) => void recorded.push(...entries),
    pressure: 0,
    durable: () => undefined,
    durableSoon: () => undefined,
  }
  const recorder = new AttemptRecorder(journal, '1-0', 1)
  const message = { role: 'assistant', content: 'x' } as const
  const call = { model: 'm' } as CallRecord
  for (const [index, routedExperts] of [small, large].entries()) {
    const tokens = { ids: Int32Array.of(7), logprobs: Float32Array.of(-1), routedExperts }
    const node = { seq: 2 + index, parent: 1 + index, hash: 'h', message, sampled: true, at: 1, call, tokens }
    recorder.node(node, JSON.stringify(message))
  }
  applyAll(folder.path, structuredClone([...rolloutEntries(1), ...recorded]))
  using reader = RunReader.open(folder.path)
  const nodes = reader.nodes('1-0', 1).slice(2)
  expect(nodes.map((node) => node.tokens?.routedExperts)).toEqual([small, large])
  expect(nodes[0]).toMatchObject({ call, tokens: { ids: Int32Array.of(7) } })
  expect(nodes[0]).not.toHaveProperty('routedExperts')
  expect(reader.integrity()).toEqual([])
  const [line] = await Array.fromAsync(exportRollouts(reader, { format: 'jsonl', tokens: true }))
  const parsed = JSON.parse(line ?? '') as { nodes: { tokens?: { routedExperts: unknown } }[] }
  expect(parsed.nodes[2]?.tokens?.routedExperts).toEqual({ shape: [2, 1, 3], dtype: 'uint8', data: 'AQIDBAUG' })
})

/** What the journal gets for a child with two messages. A child that was cut off has no end. */
function childEntries(rollout: string, parent: string, isEnded = true): JournalEntry[] {
  const record = JSON.stringify({ id: rollout, outcome: 'completed', answer: rollout, ...recordParts })
  const tokens = { ids: Int32Array.of(7), logprobs: Float32Array.of(-1) }
  const entries: JournalEntry[] = [
    { kind: 'attempt-start', rollout, attempt: 1, parent, task: 1, sample: 0, at: 1 },
    nodeEntry({ rollout, seq: 0 }),
    Object.assign(nodeEntry({ rollout, seq: 1 }), tokens),
  ]
  const end = { outcome: 'completed', record, leaf: 1 } as const
  if (isEnded) entries.push({ kind: 'attempt-end', rollout, attempt: 1, at: 2, isHeld: false, ...end })
  return entries
}

test('ended children are in the line of their rollout; a damaged child affects only itself', async () => {
  using folder = temporaryFolder()
  const children = [
    ...childEntries('1-0.t1-a', '1-0'),
    ...childEntries('1-0.t1-a.t1-b', '1-0.t1-a'),
    ...childEntries('1-0.t1-c', '1-0', false),
    { ...childEntries('1-0.t1-d', '1-0')[0], attempt: 2 } as JournalEntry,
  ]
  applyAll(folder.path, [...children, ...rolloutEntries(1, { record: { children: 2 } }), ...rolloutEntries(2)])
  for (const tokens of [false, true]) {
    const { lines, damaged } = await exported(folder.path, tokens)
    const [first, second] = lines.map((line) => JSON.parse(line) as { childRollouts?: Record<string, unknown>[] })
    expect(second).not.toHaveProperty('childRollouts')
    expect(first?.childRollouts?.map(({ id, parent, answer }) => [id, parent, answer])).toEqual([
      ['1-0.t1-a', '1-0', '1-0.t1-a'],
      ['1-0.t1-a.t1-b', '1-0.t1-a', '1-0.t1-a.t1-b'],
    ])
    const sampled = { seq: 1, tokens: { ids: [7], logprobs: [-1] } }
    for (const child of first?.childRollouts ?? []) {
      expect(child).toMatchObject({ messages: [{ content: '0' }, { content: '1' }] })
      if (tokens) expect(child['nodes']).toMatchObject([{ seq: 0 }, sampled])
      else expect(child).not.toHaveProperty('nodes')
    }
    expect(damaged).toEqual([])
  }
  damage(folder.path, "UPDATE node SET message = '{' WHERE rollout = '1-0.t1-a'")
  const { lines, damaged } = await exported(folder.path)
  expect(damaged).toEqual(['1-0.t1-a'])
  expect(JSON.parse(lines[0] ?? '')).toMatchObject({
    reward: 1,
    childRollouts: [
      { kind: 'damaged', id: '1-0.t1-a', parent: '1-0', outcome: 'completed', error: { code: 'store_failed' } },
      { id: '1-0.t1-a.t1-b', messages: [{ content: '0' }, { content: '1' }] },
    ],
  })
})

/** An export, and what `onDamaged` got. */
async function exported(folder: string, tokens = false) {
  using reader = RunReader.open(folder)
  const damaged: string[] = []
  const onDamaged = (rollout: string): unknown => damaged.push(rollout)
  const lines = await Array.fromAsync(exportRollouts(reader, { format: 'jsonl', tokens, onDamaged }))
  return { lines, damaged }
}

function damage(folder: string, sql: string): void {
  using database = new DatabaseSync(join(folder, runFiles.database))
  database.exec(sql)
}

const threeRollouts = [1, 2, 3].flatMap((task) => rolloutEntries(task))

test.each([
  ['a record that is no JSON', `UPDATE rollout SET record = '{"id":' WHERE id = '2-0'`],
  ['a record that is bytes', "UPDATE rollout SET record = CAST(record AS BLOB) WHERE id = '2-0'"],
  ['a record that is null', "UPDATE rollout SET record = 'null' WHERE id = '2-0'"],
  ['a record that is a number', "UPDATE rollout SET record = 5 WHERE id = '2-0'"],
  ['a record that is a list', "UPDATE rollout SET record = '[' || record || ']' WHERE id = '2-0'"],
  ['a record without anything in it', "UPDATE rollout SET record = '{}' WHERE id = '2-0'"],
  ['a record without usage', "UPDATE rollout SET record = json_remove(record, '$.usage') WHERE id = '2-0'"],
  [
    'a record of an unknown outcome',
    "UPDATE rollout SET record = json_set(record, '$.outcome', 'toString') WHERE id = '2-0'",
  ],
  [
    'a record of another rollout',
    "UPDATE rollout SET record = (SELECT record FROM rollout WHERE id = '1-0') WHERE id = '2-0'",
  ],
  ['a record whose file is gone', "UPDATE rollout SET record = 'blob:0000' WHERE id = '2-0'"],
  ['a message that is no JSON', `UPDATE node SET message = '{"role":"us' WHERE rollout = '2-0' AND seq = 1`],
  ['a message that is bytes', "UPDATE node SET message = CAST(message AS BLOB) WHERE rollout = '2-0' AND seq = 1"],
  ['a message that is null', "UPDATE node SET message = 'null' WHERE rollout = '2-0' AND seq = 1"],
  ['a message that is a number', "UPDATE node SET message = '5' WHERE rollout = '2-0' AND seq = 1"],
  ['a message of an unknown role', `UPDATE node SET message = '{"role":"x"}' WHERE rollout = '2-0' AND seq = 1`],
  ['a message whose file is gone', "UPDATE node SET message = 'blob:0000' WHERE rollout = '2-0' AND seq = 1"],
  ['a first message that is missing', "DELETE FROM node WHERE rollout = '2-0' AND seq = 0"],
  ['a last message that is missing', "DELETE FROM node WHERE rollout = '2-0' AND seq = 1"],
  ['messages that follow each other in a ring', "UPDATE node SET parent = 1 WHERE rollout = '2-0' AND seq = 0"],
])('%s damages only its own rollout', async (_what, sql) => {
  using folder = temporaryFolder()
  applyAll(folder.path, threeRollouts)
  const whole = { bare: await exported(folder.path), tokens: await exported(folder.path, true) }
  damage(folder.path, sql)
  for (const [before, tokens] of [
    [whole.bare, false],
    [whole.tokens, true],
  ] as const) {
    const { lines, damaged } = await exported(folder.path, tokens)
    expect(damaged).toEqual(['2-0'])
    expect([lines[0], lines[2]]).toEqual([before.lines[0], before.lines[2]])
    expect(JSON.parse(lines[1] ?? '')).toEqual({
      kind: 'damaged',
      id: '2-0',
      task: { index: 2, id: 'task-2' },
      sample: 0,
      attempt: 1,
      outcome: 'completed',
      reward: null,
      error: { code: 'store_failed', message: expect.stringMatching(/ 2-0 .*cannot be read; if it matters, restore/) },
    })
  }
})

test('unreadable tokens damage only an export with tokens', async () => {
  using folder = temporaryFolder()
  applyAll(folder.path, threeRollouts)
  damage(folder.path, "UPDATE node SET meta = '{' WHERE rollout = '2-0'")
  expect((await exported(folder.path)).damaged).toEqual([])
  expect((await exported(folder.path, true)).damaged).toEqual(['2-0'])
})

test.each([
  ['record', "UPDATE rollout SET record = 'blob:0000' WHERE id = '2-0'"],
  ['message', "UPDATE node SET message = 'blob:0000' WHERE rollout = '2-0'"],
])('a rollout is not reported as damaged if its %s is temporarily unavailable', async (_what, outOfLine) => {
  using folder = temporaryFolder()
  applyAll(folder.path, threeRollouts)
  damage(folder.path, outOfLine)
  using _unreachable = blobOutOfReach(folder.path)
  await expect(exported(folder.path)).rejects.toMatchObject({ code: 'ENXIO' })
})

test.each(['EIO', 'ELOOP'] as const)(
  'a message file that cannot be read (%s) damages only its own rollout',
  async (code) => {
    using folder = temporaryFolder()
    applyAll(folder.path, threeRollouts)
    damage(folder.path, "UPDATE node SET message = 'blob:0000' WHERE rollout = '2-0'")
    using _unreadable = unreadableBlob(folder.path, code)
    const { lines, damaged } = await exported(folder.path)
    expect([lines.length, damaged]).toEqual([3, ['2-0']])
  },
)

test.each([
  ['message', { messages: ['x'.repeat(70_000)] }],
  ['record', { record: { answer: 'x'.repeat(70_000) } }],
])('a %s in a file with a changed byte damages only its own rollout', async (_what, shape) => {
  using folder = temporaryFolder()
  applyAll(folder.path, [...rolloutEntries(1), ...rolloutEntries(2, shape), ...rolloutEntries(3)])
  flipBlobs(folder.path)
  const { lines, damaged } = await exported(folder.path)
  expect([lines.length, damaged]).toEqual([3, ['2-0']])
})

test('tokens in a file with a changed byte damage only an export with tokens', async () => {
  using folder = temporaryFolder()
  const large = { ids: new Int32Array(70_000), logprobs: Float32Array.of(-1) }
  applyAll(folder.path, [...threeRollouts, { ...nodeEntry({ rollout: '2-0', seq: 2 }), ...large }])
  flipBlobs(folder.path)
  expect((await exported(folder.path)).damaged).toEqual([])
  expect((await exported(folder.path, true)).damaged).toEqual(['2-0'])
})

test('rollouts are not reported as damaged if the run is deleted during the export', async () => {
  using root = temporaryFolder()
  const folder = join(root.path, 'run')
  mkdirSync(folder)
  applyAll(
    folder,
    [1, 2].flatMap((task) => rolloutEntries(task, { messages: [`${task}`.repeat(70_000)] })),
  )
  using reader = RunReader.open(folder)
  const lines = exportRollouts(reader, { format: 'jsonl' })
  await lines.next()
  renameSync(folder, join(root.path, '.pruned'))
  await expect(lines.next()).rejects.toMatchObject({ code: 'run_not_found' })
})

test('a corrupt page among the results is an error that says how to recover the database', async () => {
  using folder = temporaryFolder()
  const many = Array.from({ length: 20 }, (_, task) =>
    // In line, and longer than a page.
    rolloutEntries(task, { record: task === 7 ? { answer: 'x'.repeat(40_000) } : {} }),
  )
  applyAll(folder.path, many.flat())
  damagePage(folder.path, 'rollout', 'overflow')
  await expect(exported(folder.path)).rejects.toMatchObject({
    code: 'store_failed',
    rawMessage: expect.stringMatching(/is damaged .*`sqlite3 journal\.sqlite "\.recover"`/),
  })
})
