import { evaluate } from '../_expression.ts'
import { calculate } from './_calculate.ts'
import type { Solver } from './solver.ts'

/** For a short story with numbers: the first is the amount, and each later one changes it as the words before it say. */
export const wordProblem: Solver = {
  name: 'word-problem',
  solve(context) {
    if (!/\bhow (?:many|much)\b/i.test(context.question)) return undefined
    const expression = readStory(context.question)
    return expression === undefined ? undefined : calculate(context, expression)
  },
}

const changes: readonly (readonly [RegExp, string])[] = [
  [/\b(?:buys|gets|finds|receives|earns|adds|bakes|picks|gains|collects|borrows)\b/gi, '+'],
  [/\b(?:sells|loses|eats|gives|uses|spends|breaks|lends|drops|throws)\b/gi, '-'],
  [/\b(?:each|every) (?:holds?|has|have|with|costs?|contains?|weighs)\b/gi, '*'],
  [/\b(?:shared|split|divided|shares|splits|divides)\b/gi, '/'],
]

function readStory(story: string): string | undefined {
  let expression: string | undefined
  let from = 0
  let sign: string | undefined
  for (const match of story.matchAll(/\d+(?:\.\d+)?/g)) {
    const [number] = match
    if (expression === undefined) {
      expression = number
    } else {
      // `spends 5 on lunch and 16 on a ticket`: a number without a verb of its own uses the one before it.
      sign = lastChange(story.slice(from, match.index)) ?? sign
      if (sign === undefined) return undefined
      expression =
        sign === '+' || sign === '-' ? `${expression} ${sign} ${number}` : `(${expression}) ${sign} ${number}`
    }
    from = match.index + number.length
  }
  if (expression === undefined || !expression.includes(' ')) return undefined
  return evaluate(expression) === undefined ? undefined : expression.replace(/^\((\d+(?:\.\d+)?)\)/, '$1')
}

/** The sign of the last verb before a number. */
function lastChange(words: string): string | undefined {
  let sign: string | undefined
  let latest = -1
  for (const [pattern, candidate] of changes) {
    for (const match of words.matchAll(pattern)) {
      if (match.index > latest) {
        latest = match.index
        sign = candidate
      }
    }
  }
  return sign
}
