import type { ErrorCode } from '../../errors/index.ts'
import type { NumberArray } from '../../kit/index.ts'
import type { RoutedExperts } from '../../schema/index.ts'
import type { InteractionRow } from './_rows-interactions.ts'
import type { MergedRow } from './_rows-merged.ts'
import type { SessionFacts } from './_rows-session.ts'

/** Every kind of row in an export. */
export type Row = InteractionRow | MergedRow | EmptyRow | DamagedRow | EndRow

/** Stands for a session whose main tree has no rows: there is no complete reply, or none that can be trained on. */
export interface EmptyRow extends SessionFacts {
  readonly kind: 'empty'
  /** The reward of the whole session. A session that failed like this still counts in its group. */
  readonly reward: number | null
  /** The number of lost samples in the session. */
  readonly lost: number
}

/** Stands for a session that cannot be read, or for the rest of its rows. Other sessions are not affected. */
export interface DamagedRow extends SessionFacts {
  readonly kind: 'damaged'
  readonly error: { readonly code: ErrorCode; readonly message: string }
}

/** The last row. An export without it was cut off. */
export interface EndRow {
  readonly kind: 'end'
  readonly sessions: number
  /** The number of rows before this one, not counting empty and damaged ones. */
  readonly rows: number
  readonly emptySessions: number
  readonly damagedSessions: number
  /** Complete replies that came without prompt ids, ids or log-probabilities. */
  readonly withoutTokens: number
  /** The rows outside of their session's main tree. */
  readonly sideRows: number
  /** Complete replies after another one, both with tokens. */
  readonly laterTurns: number
  /** Those of them whose prompt does not begin with the tokens of the prompt and reply before it. */
  readonly driftedTurns: number
}

export interface RowArray {
  readonly name: string
  readonly values: NumberArray
  readonly shape: readonly number[]
}

/** The plain fields and the arrays of a row, in their order. An array that is null is a plain field. */
export function partsOf(row: Row): { fields: Record<string, unknown>; arrays: RowArray[] } {
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
