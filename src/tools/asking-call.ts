import type { ToolReports } from '../schema/index.ts'
import type { WrittenCall } from './written-call.ts'

/** The tool call on whose behalf something is asked for or reported. */
export interface AskingCall {
  readonly call: WrittenCall
  /** What the call and the children it asked have reported so far; every report is added to it. */
  readonly reports: ToolReports
}
