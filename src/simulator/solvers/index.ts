import { critic, merger, planner, questionsIn, selector, user } from './agent-requests.ts'
import { arithmetic, wordProblem } from './arithmetic.ts'
import { follower, librarian, orchestrator } from './research.ts'
import { delegate, guessNumber, notebook } from './tool-games.ts'
import { facts, generic, pick } from './short-answers.ts'
import { judge } from './judge.ts'
import { shell } from './shell.ts'
import type { Solver, SolverContext, SolverReply } from './solver.ts'

/** Tried in order. The more a solver requires of a request, the earlier it stands. */
const solvers: readonly Solver[] = [
  judge,
  planner,
  user,
  critic,
  selector,
  merger,
  shell,
  guessNumber,
  delegate,
  orchestrator,
  follower,
  librarian,
  notebook,
  pick,
  facts,
  arithmetic,
  wordProblem,
]

export function solve(context: SolverContext): SolverReply {
  for (const asked of questionsIn(context)) {
    for (const solver of solvers) {
      const solved = solver.solve(asked, solve)
      if (solved) return solved
    }
  }
  return generic.solve(context)
}

export { SolverContext, type SolverReply } from './solver.ts'
export { synthesiseArguments, synthesiseJson } from './synthesise.ts'
