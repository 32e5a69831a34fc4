import { evaluateExpression } from './expression.ts'

/** The same tasks every time, made as they are needed: `difficulty` is the number of operators. */
export async function* arithmeticTasks({ count, difficulty }: { count: number; difficulty: number }) {
  for (let index = 1; index <= count; index += 1) {
    const expression = makeExpression(index, difficulty)
    yield { expression, answer: evaluateExpression(expression) }
  }
}

export function makeExpression(index: number, operators: number): string {
  // The minimal standard generator of Park and Miller: small, and the same on every machine.
  let state = (index * 7919) % 2_147_483_647
  const below = (limit: number): number => {
    state = (state * 48_271) % 2_147_483_647
    return state % limit
  }
  let expression = String(10 + below(90))
  for (let count = 0; count < operators; count += 1) {
    const operator = '+-*'.charAt(below(3))
    const left = operator === '*' && count > 0 ? `(${expression})` : expression
    expression = `${left} ${operator} ${2 + below(98)}`
  }
  return expression
}
