import { arithmetic } from './arithmetic.ts'
import { delegate } from './delegate.ts'
import { facts } from './facts.ts'
import { generic } from './generic.ts'
import { guessNumber } from './guess-number.ts'
import { judge } from './judge.ts'
import { notebook } from './notebook.ts'
import { pick } from './pick.ts'
import type { Scene } from './scene.ts'
import type { Move, Solver } from './solver.ts'
import { wordProblem } from './word-problem.ts'

/** Tried in order. The more a solver requires of a request, the earlier it stands. */
const solvers: readonly Solver[] = [judge, guessNumber, delegate, notebook, pick, facts, arithmetic, wordProblem]

export function solve(scene: Scene): Move {
  for (const solver of solvers) {
    const move = solver.solve(scene)
    if (move) return move
  }
  return generic.solve(scene)
}

export { Scene } from './scene.ts'
export { synthesiseArguments, synthesiseJson } from './_synthesise.ts'
export type { Move } from './solver.ts'
