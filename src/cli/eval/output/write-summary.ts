import type { CommandIo } from '../../process/io.ts'
import { runReference } from '../../runs/stored-run.ts'
import { summaryText, type ShownSummary } from './summary-text.ts'

/** Writes the results, at the end of an evaluation and when they are shown again. */
export function writeSummary(summary: ShownSummary, io: CommandIo): void {
  const { columns, style } = io.stdout
  const run = runReference(summary.folder, io)
  void io.stdout.write(summaryText(summary, { columns, style, program: io.program, run }))
}
