import type { ErrorCode } from '../errors/index.ts'
import { bytesOf, dtypeOf, memoryPieces, type NumberArray, numberPieces } from '../kit/index.ts'
import type { Outcome, RoutedExperts } from '../schema/index.ts'
import type { InteractionRow } from './interaction-rows.ts'
import type { MergedRow } from './merged-rows.ts'
import type { ConversationFacts } from './stored-conversation.ts'

export type Row = InteractionRow | MergedRow | EmptyRow | DamagedRow | EndRow

/**
 * Stands for a session or rollout without a row to train on: it has no complete reply in its main tree, none with tokens, or an
 * outcome that is not scored.
 */
interface EmptyRow extends ConversationFacts {
  readonly kind: 'empty'
  /** The reward of the whole session. One that failed without a reply still counts in its group. */
  readonly reward: number | null
  readonly lost: number
}

/** Stands for a session that cannot be read, or for the rest of its rows. Other sessions are not affected. */
interface DamagedRow extends ConversationFacts {
  readonly kind: 'damaged'
  readonly error: { readonly code: ErrorCode; readonly message: string }
}

/** The last row. An export without it was cut off. */
export interface EndRow extends RowCounts {
  readonly kind: 'end'
}

export interface RowCounts {
  /** Sessions, rollouts and children. */
  readonly sessions: number
  readonly rows: number
  readonly sideRows: number
  readonly emptySessions: number
  readonly damagedSessions: number
  readonly withoutTokens: number
  /** The tokens with a mask of 1. */
  readonly trainedTokens: number
  /** Rows that begin anew because a prompt did not repeat the tokens before it. */
  readonly splitRows: number
  /** Complete replies after another one, both with tokens. */
  readonly laterTurns: number
  /** Those of them whose prompt does not begin with the tokens of the prompt and reply before it. */
  readonly driftedTurns: number
  /** The tokens of those earlier prompts and replies from the first difference on. */
  readonly driftedTokens: number
}

export const noRows: RowCounts = {
  sessions: 0,
  rows: 0,
  sideRows: 0,
  emptySessions: 0,
  damagedSessions: 0,
  withoutTokens: 0,
  trainedTokens: 0,
  splitRows: 0,
  laterTurns: 0,
  driftedTurns: 0,
  driftedTokens: 0,
}

/** In the stream of a server: the rows since the last one are all rows of this group. */
export interface GroupRow {
  readonly kind: 'group'
  readonly group: string
  readonly task: string | null
  readonly taskIndex: number
  readonly rollouts: number
  /** The rollouts with a scored outcome. */
  readonly scored: number
  readonly outcomes: Readonly<Partial<Record<Outcome, number>>>
  readonly rows: number
}

/** In the stream of a server: it ends here, and is not complete. */
export interface ErrorRow {
  readonly kind: 'error'
  readonly error: { readonly code: string; readonly message: string }
}

type AnyRow = Row | GroupRow | ErrorRow

interface RowArray {
  readonly name: string
  readonly values: NumberArray
  readonly shape: readonly number[]
}

function partsOf(row: AnyRow): { fields: Record<string, unknown>; arrays: RowArray[] } {
  const fields: Record<string, unknown> = {}
  const arrays: RowArray[] = []
  for (const [name, value] of Object.entries(row) as [string, unknown][]) {
    if (isNumbers(value)) arrays.push({ name, values: value, shape: [value.length] })
    else if (isRouted(value)) arrays.push({ name, values: value.experts, shape: value.shape })
    else fields[name] = value
  }
  return { fields, arrays }
}

function isNumbers(value: unknown): value is NumberArray {
  return ArrayBuffer.isView(value)
}

function isRouted(value: unknown): value is RoutedExperts {
  return typeof value === 'object' && value !== null && 'experts' in value && isNumbers(value.experts)
}

/** One row as a line of JSON, newline included, in pieces. A log-probability that is not finite is null. */
export function* jsonPieces(row: AnyRow): Generator<string, void, void> {
  const { fields, arrays } = partsOf(row)
  yield JSON.stringify(fields).slice(0, -1)
  for (const { name, values, shape } of arrays) {
    yield `,"${name}":`
    // As a list of numbers, experts would be the longest part of a line by far.
    yield* name === 'routedExperts' ? memoryPieces(values, shape) : numberPieces(values)
  }
  yield '}\n'
}

/** The first bytes of a file of rows; docs/export.md describes every byte. The head may come again between two frames. */
export const binaryHead: Uint8Array = Uint8Array.from([...Buffer.from('MILLROWS'), 1, 0, 0, 0, 0, 0, 0, 0])

const alignment = 8
const lengthsBytes = 8

/**
 * One row: the lengths of its header and of its arrays, the header (JSON, with a list of the arrays), the arrays as they lie
 * in memory. Header and arrays each begin at a multiple of eight bytes, so that they can be used where they are.
 *
 *     u32 header bytes | u32 array bytes | header, padded | array, padded | array, padded | …
 */
export function binaryFrame(row: AnyRow): Uint8Array {
  const { fields, arrays } = partsOf(row)
  let arrayBytes = 0
  const list = arrays.map(({ name, values, shape }) => {
    const described = { name, type: dtypeOf(values), shape, offset: arrayBytes }
    arrayBytes += aligned(values.byteLength)
    return described
  })
  // The header is padded with spaces, which JSON ignores, so its unpadded length is not needed.
  const json = Buffer.from(JSON.stringify({ ...fields, arrays: list }))
  const headerBytes = aligned(json.byteLength)
  const frame = Buffer.alloc(lengthsBytes + headerBytes + arrayBytes)
  frame.writeUInt32LE(headerBytes, 0)
  frame.writeUInt32LE(arrayBytes, 4)
  json.copy(frame, lengthsBytes)
  frame.fill(' ', lengthsBytes + json.byteLength, lengthsBytes + headerBytes)
  let offset = lengthsBytes + headerBytes
  for (const { values } of arrays) {
    frame.set(bytesOf(values), offset)
    offset += aligned(values.byteLength)
  }
  return frame
}

function aligned(bytes: number): number {
  return Math.ceil(bytes / alignment) * alignment
}
