import { arithmetic } from './arithmetic.ts'
import { delegate } from './delegate.ts'
import { facts } from './facts.ts'
import { generic } from './generic.ts'
import { guessNumber } from './guess-number.ts'
import { judge } from './judge.ts'
import { notebook } from './notebook.ts'
import { pick } from './pick.ts'
import { shell } from './shell.ts'
import type { SolverContext } from './solver-context.ts'
import type { SolverReply, Solver } from './solver.ts'
import { wordProblem } from './word-problem.ts'

/** Tried in order. The more a solver requires of a request, the earlier it stands. */
const solvers: readonly Solver[] = [judge, shell, guessNumber, delegate, notebook, pick, facts, arithmetic, wordProblem]

export function solve(context: SolverContext): SolverReply {
  for (const solver of solvers) {
    const solved = solver.solve(context)
    if (solved) return solved
  }
  return generic.solve(context)
}

export { SolverContext } from './solver-context.ts'
export { synthesiseArguments, synthesiseJson } from './_synthesise.ts'
export type { SolverReply } from './solver.ts'
