/**
 * Where tasks come from. Read once, in order, and never held: a source may be endless. `total` is for progress only:
 * known, estimated (`~`) as the source is read, or not known at all.
 */
export interface TaskSource {
  /** Where it comes from, for messages and for the record: `questions.jsonl`, `array of 300`. */
  readonly label: string
  /** Whether it is a table: what one row has no field for, none has. */
  readonly isTable?: boolean
  rows(): AsyncIterable<TaskRow>
  total?(): { count: number; exact: boolean } | undefined
}

/** One raw row. A row that could not be read is a row too: it costs its own rollouts, not the run. */
export type TaskRow =
  | { readonly at: string; readonly value: unknown }
  | { readonly at: string; readonly problem: string }
