import type { ToolReports } from '../schema/index.ts'
import type { WrittenCall } from './written-call.ts'

/** The tool call in whose name something is asked for or reported. */
export interface AskingCall {
  readonly call: WrittenCall
  /** What it and those it asked have reported so far; added to by whoever is told a report. */
  readonly reports: ToolReports
}
