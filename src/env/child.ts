import type { Message, Outcome, Sampling, Usage } from '../schema/index.ts'
import type { Agent } from './agent.ts'

export interface ChildRequest {
  /** A user message, or a whole conversation to start from. */
  readonly prompt: string | readonly Message[]
  /** Names of the parent's tools it may use; all of them if not given. */
  readonly tools?: readonly string[]
  readonly agent?: Agent
  readonly model?: string
  readonly sampling?: Sampling
  /** A share of what the parent has left; never more than that. */
  readonly limits?: { readonly maxTurns?: number; readonly maxTokens?: number; readonly timeoutMs?: number }
}

/** A child that failed is a result too, with its outcome; but one whose tool servers are gone ends its parent with it. */
export interface ChildResult {
  readonly id: string
  readonly outcome: Outcome
  readonly answer: string
  readonly messages: readonly Message[]
  readonly turns: number
  readonly usage: Usage
}
