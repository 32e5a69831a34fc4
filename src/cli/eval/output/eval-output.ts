import type { RunInfo, Summary } from '../../../eval/index.ts'
import type { RolloutRecord } from '../../../schema/index.ts'

/** Shows a run while it goes on and at its end: on a terminal, as plain lines, or as JSON. */
export interface EvalOutput extends Disposable {
  start(info: RunInfo): void
  /** Shows a rollout's result. The promise is back-pressure. */
  rollout(record: RolloutRecord): Promise<void> | undefined
  /** Shows something that a person should know at once. */
  note(text: string): void
  /** Stops showing progress: only the end is shown after that. */
  quiet(): void
  end(summary: Summary): void
}
