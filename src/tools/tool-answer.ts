import type { Json } from '../schema/index.ts'
import type { ToolOutput } from './tool.ts'

/** What a tool may return instead of its bare output, to say more about the call than the model sees. */
export class ToolAnswer {
  readonly output: ToolOutput
  /** It counts as a call that failed. The model sees the output as it is: that should say so. */
  readonly isError: boolean
  /** Kept with the tool message. */
  readonly detail: Readonly<Record<string, Json>> | undefined

  constructor(output: ToolOutput, options: { isError?: boolean; detail?: Readonly<Record<string, Json>> } = {}) {
    this.output = output
    this.isError = options.isError ?? false
    this.detail = options.detail
  }
}
