/**
 * A source of tasks. It is read once, in order, and never held: it may be endless. `total` is only for progress: exact,
 * estimated (`~`) while the source is read, or not known at all.
 */
export interface TaskSource {
  /** The source's name, for messages and for the record: `questions.jsonl`, `array of 300`. */
  readonly label: string
  /** Whether the source is a table: then a field that one row lacks is missing in all rows. */
  readonly isTable?: boolean
  /** Whether the rows may be others each time they are read, as those of a generator: a stored run then goes by the rows it keeps. */
  readonly isGenerated?: boolean
  rows(): AsyncIterable<TaskRow>
  total?(): { count: number; exact: boolean } | undefined
}

/** One raw row. A row that could not be read is a row too: it fails its own rollouts, not the run. */
export type TaskRow =
  | { readonly at: string; readonly value: unknown }
  | { readonly at: string; readonly problem: string }
