import type { Json } from '../schema/index.ts'
import type { ToolOutput } from './tool.ts'

/** A tool may return this instead of its bare output, to say more about the call than the model sees. */
export class ToolAnswer {
  readonly output: ToolOutput
  /** Whether the call counts as failed. The model sees the output as it is: it should say so itself. */
  readonly isError: boolean
  /** Facts that are kept with the tool message. */
  readonly detail: Readonly<Record<string, Json>> | undefined

  constructor(output: ToolOutput, options: { isError?: boolean; detail?: Readonly<Record<string, Json>> } = {}) {
    this.output = output
    this.isError = options.isError ?? false
    this.detail = options.detail
  }
}
