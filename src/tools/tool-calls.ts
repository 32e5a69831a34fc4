import { EventChannel } from '../kit/index.ts'
import type { ToolStatus } from '../schema/index.ts'

/** One tool call that ended, as listeners see it. Answers taken from a journal are not reported. */
export interface ToolCallEvent {
  /** See `ToolCallOptions`. */
  readonly trace: object | undefined
  readonly tool: string
  readonly callId: string
  /** `ended_attempt`: the tool threw an error that ends the attempt. `stopped`: the rollout ended before the call did. */
  readonly status: ToolStatus | 'ended_attempt' | 'stopped'
  /** On the clock of `performance.now()`. */
  readonly startedAt: number
  readonly ms: number
}

export const toolCalls = new EventChannel<ToolCallEvent>('millrace:tool-call')
