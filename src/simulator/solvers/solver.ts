import type { JsonObject } from '../../schema/index.ts'
import type { SolverContext } from './solver-context.ts'

/** What to do in one turn: say something, call tools, or both. */
export interface SolverReply {
  readonly text?: string
  readonly calls?: readonly { readonly name: string; readonly arguments: JsonObject }[]
}

/**
 * Knows one kind of task. It recognises the task from the messages and tools alone, so it works for any client, and returns
 * undefined for all other tasks. Where the turn is a decision, `context.isRight` says whether to take the right one.
 */
export interface Solver {
  readonly name: string
  solve(context: SolverContext): SolverReply | undefined
}
