import { hash } from 'node:crypto'
import { expect, test } from 'vitest'
import type { Message } from '../schema/index.ts'
import { RunReader } from '../store/index.ts'
import { exportRows, type ExportRowsOptions } from './export-rows.ts'
import { parquetChunks } from './parquet.ts'
import type { EndRow, Row } from './row.ts'
import { temporaryFolder } from '../../test/support/store/fixtures.ts'
import { type RandomSession, randomSession, sessionEntries } from '../../test/support/gateway/random-session.ts'
import { type ReadRow, readBinaryRows, readParquetRows } from '../../test/support/gateway/read-rows.ts'
import { applyAll } from '../../test/support/store/apply-entries.ts'

async function exported(sessions: readonly RandomSession[], options: ExportRowsOptions): Promise<Buffer> {
  using folder = temporaryFolder()
  applyAll(folder.path, sessions.flatMap(sessionEntries))
  using reader = RunReader.open(folder.path)
  return Buffer.concat(await Array.fromAsync(exportRows(reader, options)))
}

/** A row without its nulls, in which a message is whole again: columns have a null for each field that another row has. */
function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNulls)
  if (typeof value !== 'object' || value === null || ArrayBuffer.isView(value)) return value
  const { more, ...fields } = value as Readonly<Record<string, unknown>>
  const known = Object.entries({ ...fields, ...(more as object | null | undefined) }).filter(
    ([, part]) => part !== null,
  )
  return Object.fromEntries(known.map(([name, part]) => [name, withoutNulls(part)]))
}

const facts = {
  session: '3-0/1',
  parent: '3-0',
  group: '3',
  tenant: null,
  task: 'task-3',
  sample: 0,
  sealed: true,
  truncated: true,
  rewards: { correct: { score: 0.5, weight: 2 } },
  advantage: -0.25,
} as const
const counts = { sessions: 3, rows: 2, sideRows: 0, emptySessions: 1, damagedSessions: 0, withoutTokens: 0 }
const tokenCounts = { trainedTokens: 7, splitRows: 0, laterTurns: 1, driftedTurns: 0, driftedTokens: 0 }
const end: EndRow = { kind: 'end', ...counts, ...tokenCounts }

async function* given(rows: readonly object[]): AsyncGenerator<Row, void, void> {
  yield* rows as Row[]
}

async function written(rows: readonly object[], kind: 'interactions' | 'merged') {
  return await Array.fromAsync(parquetChunks(given(rows), kind))
}

test.each(['interactions', 'merged'] as const)('%s in a Parquet file equal those of the binary form', async (rows) => {
  const sessions = Array.from({ length: 80 }, (_, seed) => randomSession({ seed }))
  const options = { rows, include: 'discarded', discount: 0.9 } as const
  const binary = readBinaryRows(await exported(sessions, { ...options, format: 'binary' }))
  const parquet = await readParquetRows(await exported(sessions, { ...options, format: 'parquet' }))
  expect(parquet.rows.map(withoutNulls)).toEqual(binary.slice(0, -1).map(withoutNulls))
  expect(parquet.end).toEqual(binary.at(-1))
  expect(parquet.rows.length).toBeGreaterThan(200)
  const kinds = new Set(parquet.rows.map(({ kind }) => kind))
  expect(kinds).toEqual(new Set([rows === 'merged' ? 'merged' : 'interaction', 'empty']))
})

test('rows without arrays have all their other fields', async () => {
  const rows: Row[] = [
    { kind: 'empty', ...facts, outcome: 'model_error', reward: null, lost: 2 },
    { kind: 'damaged', ...facts, outcome: null, error: { code: 'session_damaged', message: 'no file' } },
  ]
  for (const kind of ['merged', 'interactions'] as const) {
    const [file] = await written([...rows, end], kind)
    expect((await readParquetRows(file as Uint8Array)).rows.map(withoutNulls)).toEqual(rows.map(withoutNulls))
  }
})

test('a message keeps what has no column of its own', async () => {
  const messages: Message[] = [
    { role: 'system', content: 'Be brief ünd 🙂.' },
    {
      role: 'user',
      name: 'ann',
      content: [
        { type: 'text', text: 'See ' },
        { type: 'image_url', image_url: { url: 'data:,' } },
      ],
    },
    {
      role: 'assistant',
      content: null,
      reasoning_content: 'A tool.',
      tool_calls: [{ id: 'call-1', type: 'function', function: { name: 'look', arguments: '{"at":' } }],
      others: [{ type: 'other', api: 'responses', value: { deep: [1, { two: null }] } }],
    },
    { role: 'tool', tool_call_id: 'call-1', content: '', is_error: true },
  ]
  const [file] = await written([{ kind: 'interaction', messages }, end], 'interactions')
  const { rows } = await readParquetRows(file as Uint8Array)
  const columns = rows[0]?.['messages'] as ReadRow[]
  expect(columns.map(({ content }) => content)).toEqual(['Be brief ünd 🙂.', 'See ', null, ''])
  expect(columns.map(withoutNulls)).toEqual(messages.map(withoutNulls))
})

test('arrays may be missing, empty or long, in any order and in any row group', async () => {
  const lengths = [0, null, 1, 2, 1_200_000, null, 0, 900_000, 3, null, 5, 0]
  const rows = lengths.map((length, index) => {
    if (length === null) return { kind: 'empty', session: `s-${index}`, ids: null, mask: null, logprobs: null }
    const ids = Int32Array.from({ length }, (_, at) => at * (index + 1) - 7)
    const logprobs = Float32Array.from(ids, (id) => (id % 5 === 0 ? Number.NaN : -id / 3))
    return { kind: 'merged', session: `s-${index}`, ids, mask: Uint8Array.from(ids, (id) => id & 255), logprobs }
  })
  const chunks = await written([...rows, end], 'merged')
  const { rows: read, groups } = await readParquetRows(Buffer.concat(chunks))
  const summary = ({ kind, session, ...row }: Readonly<Record<string, unknown>>): unknown => {
    const arrays = [row['ids'], row['mask'], row['logprobs']] as (Int32Array | null)[]
    return { kind, session, arrays: arrays.map((array) => array && [array.length, hash('sha256', array)]) }
  }
  expect(read.map(summary)).toEqual(rows.map(summary))
  // A group is given out as soon as it is full.
  expect(groups).toBeGreaterThan(1)
  expect(chunks).toHaveLength(groups)
})

test('an export without rows is a file with columns and the counts', async () => {
  const [file] = await written([end], 'merged')
  expect(await readParquetRows(file as Uint8Array)).toEqual({ rows: [], end, groups: 0 })
})

test('a file whose rows were cut off has no footer', async () => {
  const chunks = await written([{ kind: 'merged', ids: new Int32Array(5_000_000) }], 'merged')
  expect(chunks).toHaveLength(1)
  await expect(readParquetRows(Buffer.concat(chunks))).rejects.toThrow('parquet')
})
