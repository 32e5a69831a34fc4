import type { Message, Outcome, Sampling, Usage } from '../schema/index.ts'
import type { Agent } from './agent.ts'

export interface ChildRequest {
  /** A user message, or a whole conversation to start from. */
  readonly prompt: string | readonly Message[]
  /** The names of the parent's tools that the child may use; all of them if not given. */
  readonly tools?: readonly string[]
  /** The standard agent, `toolLoop()`, if not given: also where the environment has an agent of its own. */
  readonly agent?: Agent
  readonly model?: string
  readonly sampling?: Sampling
  /** Limits within what the parent has left; the child never gets more than that. */
  readonly limits?: { readonly maxTurns?: number; readonly maxTokens?: number; readonly timeoutMs?: number }
}

/** The result of a child, also of a failed one. Only if its tool servers are gone does the parent end too. */
export interface ChildResult {
  readonly id: string
  readonly outcome: Outcome
  readonly answer: string
  readonly messages: readonly Message[]
  readonly turns: number
  readonly usage: Usage
}
