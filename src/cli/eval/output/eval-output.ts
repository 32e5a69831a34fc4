import type { RunInfo, Summary } from '../../../eval/index.ts'
import type { RolloutRecord } from '../../../schema/index.ts'

/** How a run is shown while it goes on and at its end: on a terminal, as plain lines, or as JSON. */
export interface EvalOutput extends Disposable {
  start(info: RunInfo): void
  /** The promise is back-pressure. */
  rollout(record: RolloutRecord): Promise<void> | undefined
  /** Something a person should know at once. */
  note(text: string): void
  /** No progress from here on: what is left is the end. */
  quiet(): void
  end(summary: Summary): void
}
