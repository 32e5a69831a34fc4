import type { ToolCall } from '../schema/index.ts'

/** A call as a model wrote it: natively, or in its text, where a format may name the server too. */
export interface WrittenCall extends ToolCall {
  readonly server?: string
}
