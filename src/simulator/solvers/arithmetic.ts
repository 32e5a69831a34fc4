import { evaluate } from '../_expression.ts'
import { calculate } from './_calculate.ts'
import type { Solver } from './solver.ts'

/** An arithmetic expression somewhere in the question, in signs or in words. */
export const arithmetic: Solver = {
  name: 'arithmetic',
  solve(context) {
    const expression = findExpression(context.question)
    return expression === undefined ? undefined : calculate(context, expression)
  },
}

const words: readonly (readonly [RegExp, string])[] = [
  [/\bplus\b/gi, '+'],
  [/\bminus\b|−/gi, '-'],
  [/\b(?:times|multiplied by)\b|×|·/gi, '*'],
  [/\bdivided by\b|÷/gi, '/'],
]

/** The longest run of text that is an expression with at least one operator. */
export function findExpression(question: string): string | undefined {
  let text = question
  for (const [word, sign] of words) text = text.replace(word, sign)
  let longest: string | undefined
  for (const [run] of text.matchAll(/[-(\d][-+*/()\d. ]*/g)) {
    // A full stop or a dash after the expression belongs to the sentence.
    const candidate = run.replace(/[^\d)]+$/, '')
    if (candidate.length <= (longest?.length ?? 0) || !/[\d)] *[-+*/]/.test(candidate)) continue
    if (evaluate(candidate) !== undefined) longest = candidate
  }
  return longest
}
