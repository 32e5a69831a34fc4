import assert from 'node:assert/strict'
import { type EndRow, type Row, rowsOf } from '../../../src/rows/index.ts'
import { RunReader } from '../../../src/store/index.ts'
import type { EngineLedger, Entry } from './ledger.ts'

/** What a run came to, by the ledger's own count where that is possible. */
export interface Found {
  readonly conversations: number
  readonly replies: number
  readonly sampled: number
  readonly calls: number
  readonly cutOff: number
  readonly rows: number
  readonly splitRows: number
  readonly laterTurns: number
  readonly driftedTurns: number
  readonly driftedTokens: number
  readonly merged: readonly MergedRow[]
}

type InteractionRow = Extract<Row, { kind: 'interaction' }>
type MergedRow = Extract<Row, { kind: 'merged' }>

/** Checks the record of a run against the engine's own words: every id, log-probability and version, and what a trainer would get. */
export async function compareRun(folder: string, ledger: EngineLedger): Promise<Found> {
  using reader = RunReader.open(folder)
  assert.deepEqual(ledger.problems, [], 'the ledger is not complete')
  const all = (await rowsIn(reader, 'interaction')).rows
  const interactions = Map.groupBy(all, ({ session }) => session)
  const { rows, end } = await rowsIn(reader, 'merged')
  const merged = Map.groupBy(rows, ({ session }) => session)
  const drift = { laterTurns: 0, driftedTurns: 0, driftedTokens: 0 }
  let replies = 0
  for (const [session, recorded] of interactions) {
    const entries = ledger.entriesOf(session)
    assert.equal(recorded.length, entries.length, `replies on record and replies of the engine in ${session}`)
    for (const [index, entry] of entries.entries()) {
      const row = recorded[index]
      assert.ok(row, `no reply ${index} in ${session}`)
      requireSame(row, entry)
      const before = entries[index - 1]
      if (before) addDrift(drift, before, entry)
    }
    replies += entries.length
    requireTrainedOnce(entries, merged.get(session) ?? [])
  }
  assert.equal(replies, ledger.entries.length, 'replies on record and replies of the engine')
  const { laterTurns, driftedTurns, driftedTokens } = end
  assert.deepEqual({ laterTurns, driftedTurns, driftedTokens }, drift, 'the drift that the export counts')
  return {
    conversations: interactions.size,
    replies,
    sampled: ledger.entries.reduce((sum, { ids }) => sum + ids.length, 0),
    calls: all.reduce((sum, { messages }) => sum + callsIn(messages.at(-1)), 0),
    cutOff: all.filter(({ finishReason }) => finishReason === 'length').length,
    rows: rows.length,
    splitRows: end.splitRows,
    ...drift,
    merged: rows,
  }
}

/** The rows of a run, of which the last one has the counts, and all others are of the kind that was asked for. */
async function rowsIn<Kind extends 'interaction' | 'merged'>(
  reader: RunReader,
  kind: Kind,
): Promise<{ readonly rows: Extract<Row, { kind: Kind }>[]; readonly end: EndRow }> {
  const rows: Extract<Row, { kind: Kind }>[] = []
  let end: EndRow | undefined
  for await (const row of rowsOf(reader, { rows: kind === 'merged' ? kind : 'interactions' })) {
    if (isKind(row, kind)) rows.push(row)
    else if (row.kind === 'end') end = row
    else throw new Error(`there is a row of kind ${row.kind}`)
  }
  assert.ok(end, 'the export has no end')
  return { rows, end }
}

function isKind<Kind extends Row['kind']>(row: Row, kind: Kind): row is Extract<Row, { kind: Kind }> {
  return row.kind === kind
}

function callsIn(message: InteractionRow['messages'][number] | undefined): number {
  return message?.role === 'assistant' ? (message.tool_calls?.length ?? 0) : 0
}

function requireSame({ session, node, promptIds, ids, logprobs, versions }: InteractionRow, entry: Entry): void {
  const where = `of reply ${node} in ${session}`
  assert.deepEqual(Array.from(promptIds ?? []), entry.promptIds, `prompt ids ${where}`)
  assert.deepEqual(Array.from(ids ?? []), entry.ids, `ids ${where}`)
  assert.deepEqual(
    Array.from(logprobs ?? []),
    Array.from(new Float32Array(entry.logprobs)),
    `log-probabilities ${where}`,
  )
  if (entry.versions.length === 0) return
  const each = (versions ?? []).flatMap(({ version, count }) => Array.from({ length: count }, () => version))
  assert.deepEqual(each, entry.versions, `weight versions ${where}`)
}

/** The places at which the engine itself was given other tokens than it had seen and sampled before. */
function addDrift(
  drift: { laterTurns: number; driftedTurns: number; driftedTokens: number },
  before: Entry,
  entry: Entry,
): void {
  const earlier = [...before.promptIds, ...before.ids]
  const at = earlier.findIndex((id, index) => id !== entry.promptIds[index])
  drift.laterTurns += 1
  if (at === -1) return
  drift.driftedTurns += 1
  drift.driftedTokens += earlier.length - at
}

/** Every sampled token is trained once, in a row that has the tokens which the engine saw before it. */
function requireTrainedOnce(entries: readonly Entry[], rows: readonly MergedRow[]): void {
  const sums = rows.map(({ mask }) => mask.reduce((sum, each) => sum + each, 0))
  const sampled = entries.reduce((sum, { ids }) => sum + ids.length, 0)
  assert.equal(
    sums.reduce((sum, each) => sum + each, 0),
    sampled,
    'tokens that are trained, and tokens that were sampled',
  )
  for (const { promptIds, ids, logprobs } of entries) {
    const whole = [...promptIds, ...ids]
    const holding = rows.filter((row) => {
      const start = promptIds.length
      const isTrained = row.mask.subarray(start, whole.length).every((each) => each === 1)
      return row.ids.length >= whole.length && whole.every((id, index) => row.ids[index] === id) && isTrained
    })
    assert.equal(holding.length, 1, 'rows that train a reply after exactly its prompt')
    const [row] = holding
    const own = row?.logprobs.subarray(promptIds.length, whole.length) ?? []
    assert.deepEqual(Array.from(own), Array.from(new Float32Array(logprobs)), 'log-probabilities of a row')
  }
}

/** The largest difference between the log-probabilities of rows and those that the engine gives the same ids in one prompt. */
export async function rescore(engine: string, rows: readonly MergedRow[]): Promise<number> {
  let largest = 0
  for (const { ids, mask, logprobs } of rows) {
    const asked = { model: 'tiny', prompt: Array.from(ids), max_tokens: 1, prompt_logprobs: 0 }
    const init = { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(asked) }
    const { choices } = (await (await fetch(`${engine}/v1/completions`, init)).json()) as {
      choices: [{ prompt_logprobs: readonly (Readonly<Record<string, { logprob: number }>> | null)[] }]
    }
    for (const [index, id] of ids.entries()) {
      if (mask[index] === 0) continue
      const theirs = choices[0].prompt_logprobs[index]?.[id]?.logprob ?? Number.NaN
      const difference = Math.abs(theirs - (logprobs[index] ?? Number.NaN))
      assert.ok(!Number.isNaN(difference), `no log-probability of token ${index}`)
      largest = Math.max(largest, difference)
    }
  }
  return largest
}
