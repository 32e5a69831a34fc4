import assert from 'node:assert/strict'

/** One reply, as it was recorded or as the backend says that it left. */
export interface Tokens {
  readonly promptIds: readonly number[]
  readonly ids: readonly number[]
  readonly logprobs: readonly number[]
}

/** A reply of `--rows interactions`. */
export interface Recorded extends Tokens {
  readonly dropped: readonly string[]
  readonly messages: readonly { readonly role: string; readonly tool_calls?: readonly unknown[] }[]
}

/** A row of `--rows merged`. */
export interface MergedRow {
  readonly ids: readonly number[]
  readonly mask: readonly number[]
  readonly splitAt: unknown
}

export interface TokenRecord {
  readonly recorded: readonly Recorded[]
  /** What the backend says that it sent. */
  readonly emitted: readonly Tokens[]
  readonly rows: readonly MergedRow[]
}

interface Expected {
  /** Training rows: one for each conversation. */
  readonly rows?: number
  /** The most calls that one reply has. */
  readonly callsAtOnce?: number
}

/** Checks that everything was recorded to the token, and as so many rows as there were conversations. Returns what there was. */
export function tokenSummary(record: TokenRecord, { rows: count = 1, callsAtOnce = 1 }: Expected): string {
  const { recorded, emitted, rows } = record
  const tokensOf = ({ promptIds, ids, logprobs }: Tokens): Tokens => ({ promptIds, ids, logprobs })
  assert.deepEqual(recorded.map(tokensOf), emitted.map(tokensOf), 'the record has other tokens than the backend')
  for (const { ids, logprobs } of recorded) assert.equal(logprobs.length, ids.length, 'log-probabilities of a reply')
  const calls = recorded.flatMap(({ messages }) => messages.map(({ tool_calls: made = [] }) => made.length))
  assert.equal(Math.max(...calls), callsAtOnce, 'calls at once')

  assert.equal(rows.length, count, `rows: ${JSON.stringify(rows.map(({ splitAt }) => splitAt))}`)
  for (const { ids, splitAt } of rows) {
    assert.equal(splitAt, null, 'a conversation was split')
    assert.ok(
      emitted.some((reply) => String([...reply.promptIds, ...reply.ids]) === String(ids)),
      'a row has ids that no prompt and reply of the backend had',
    )
  }
  const sampled = emitted.reduce((sum, { ids }) => sum + ids.length, 0)
  const trained = rows.reduce((sum, { mask }) => sum + mask.reduce((one, other) => one + other, 0), 0)
  assert.equal(trained, sampled, 'tokens that are trained, and those that were sampled')
  const dropped = new Set(recorded.flatMap((each) => each.dropped))
  const length = rows.reduce((sum, { ids }) => sum + ids.length, 0)
  const summary = `${emitted.length} replies, ${rows.length} ${rows.length === 1 ? 'row' : 'rows'}, ${length} ids, ${sampled} sampled`
  return dropped.size === 0 ? summary : `${summary}; left out: ${[...dropped].join(', ')}`
}
