import type { ErrorCode } from '../../errors/index.ts'
import type { RoutedExperts } from '../../schema/index.ts'
import type { InteractionRow } from './_rows-interactions.ts'
import type { MergedRow } from './_rows-merged.ts'
import type { SessionFacts } from './_rows-session.ts'

/** Everything an export consists of. */
export type Row = InteractionRow | MergedRow | EmptyRow | DamagedRow | EndRow

/** In place of the rows of a session without any: no reply was completed in it, or none that can be trained on. */
export interface EmptyRow extends SessionFacts {
  readonly kind: 'empty'
  /** What was said of it as a whole. It failed like this beside others of its group, and counts among them. */
  readonly reward: number | null
  /** How many samples were lost in it. */
  readonly lost: number
}

/** In place of the rows of a session that cannot be read, or of those that are left of it. The others are as they were. */
export interface DamagedRow extends SessionFacts {
  readonly kind: 'damaged'
  readonly error: { readonly code: ErrorCode; readonly message: string }
}

/** The last one. An export without it was cut off. */
export interface EndRow {
  readonly kind: 'end'
  readonly sessions: number
  /** Those before this one, the empty and damaged ones aside. */
  readonly rows: number
  readonly emptySessions: number
  readonly damagedSessions: number
  /** Complete replies that came without prompt ids, ids or log-probabilities. */
  readonly withoutTokens: number
}

type Numbers = Int32Array | Float32Array | Uint8Array | Int16Array

export interface RowArray {
  readonly name: string
  readonly values: Numbers
  readonly shape: readonly number[]
}

/** A row as its plain fields and its arrays, in the order they stand in it. An array that is null is a plain field. */
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

function isNumbers(value: unknown): value is Numbers {
  return ArrayBuffer.isView(value)
}

function isRouted(value: unknown): value is RoutedExperts {
  return typeof value === 'object' && value !== null && 'experts' in value && isNumbers(value.experts)
}
