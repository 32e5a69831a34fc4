import { findTool, formatAnswer, type Solver, type SolverContext, type SolverReply } from './solver.ts'

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

function lastChange(text: string): string | undefined {
  let sign: string | undefined
  let latest = -1
  for (const [pattern, candidate] of changes) {
    for (const match of text.matchAll(pattern)) {
      if (match.index > latest) {
        latest = match.index
        sign = candidate
      }
    }
  }
  return sign
}

const calculatorName = /calc|math|arithmetic/i
const expressionName = /^(expression|formula|equation|calculation)$/i
/** How often a calculator that answers with errors is tried; after that the sum is done without it. */
const maxToolTries = 3

/** Works out one expression, with a calculator if one is offered. What to calculate is a decision, which may be wrong. */
function calculate(context: SolverContext, expression: string): SolverReply {
  const results = context.results()
  const result = results.map(({ text }) => numberIn(text)).findLast((number) => number !== undefined)
  if (result !== undefined) return { text: formatAnswer(context, result) }
  const calculator = findTool(
    context.tools,
    ['string'],
    (name, parameter) => calculatorName.test(name) || expressionName.test(parameter),
  )
  if (calculator && results.length < maxToolTries) {
    const written = context.isRight ? expression : misread(context, expression)
    return { calls: [{ name: calculator.name, arguments: { [calculator.parameter]: written } }] }
  }
  const value = evaluate(expression) ?? 0
  return { text: formatAnswer(context, formatNumber(context.isRight ? value : miscount(context, value))) }
}

export function numberIn(text: string): string | undefined {
  const pattern = /^[\s"'{[]*(?:(?:result|answer|value)["']?\s*[:=]\s*["']?)?(-?\d+(?:\.\d+)?)[\s"'}\].]*$/i
  return text.length > 200 ? undefined : pattern.exec(text)?.[1]
}

/** A nearby wrong value: a slip by one, by ten, or in the sign. */
export function miscount(context: SolverContext, value: number): number {
  const slip = context.pick([1, -1, 10, -10, 2], 'slip')
  return value !== 0 && context.draw('sign') < 0.1 ? -value : value + slip
}

/** A nearby wrong expression: one operator taken for another. */
function misread(context: SolverContext, expression: string): string {
  const operators = [...expression.matchAll(/(?<=[\d)]\s*)[-+*/]/g)]
  const operator = operators.length > 0 ? context.pick(operators, 'operator') : undefined
  if (operator) {
    const other = operator[0] === '+' ? '-' : '+'
    const wrong = `${expression.slice(0, operator.index)}${other}${expression.slice(operator.index + 1)}`
    const value = evaluate(wrong)
    if (value !== undefined && value !== evaluate(expression)) return wrong
  }
  return `${expression} + 1`
}

const maxDepth = 64

type Operators = Readonly<Record<string, (left: number, right: number) => number>>

const additive: Operators = { '+': (left, right) => left + right, '-': (left, right) => left - right }
const multiplicative: Operators = { '*': (left, right) => left * right, '/': (left, right) => left / right }

/** The value of an arithmetic expression (+ - * / and parentheses), or undefined if the text is not one. */
function evaluate(text: string): number | undefined {
  const tokens = text.match(/[\d.]+|[^ ]/g) ?? []
  let at = 0
  let depth = 0
  /** Operands with operators of one rank between them; anything unexpected makes the value NaN. */
  function chain(operators: Operators, operand: () => number): number {
    let value = operand()
    for (let apply = operators[tokens[at] ?? '']; apply; apply = operators[tokens[at] ?? '']) {
      at += 1
      value = apply(value, operand())
    }
    return value
  }
  function sum(): number {
    return chain(additive, () => chain(multiplicative, factor))
  }
  function factor(): number {
    const token = tokens[at] ?? ''
    at += 1
    if (token === '-') return -factor()
    if (token !== '(' || depth === maxDepth) return /^[\d.]+$/.test(token) ? Number(token) : Number.NaN
    depth += 1
    const value = sum()
    depth -= 1
    at += 1
    return tokens[at - 1] === ')' ? value : Number.NaN
  }
  const value = sum()
  return at === tokens.length && Number.isFinite(value) ? value : undefined
}

export function formatNumber(value: number): string {
  return String(Number.isInteger(value) ? value : Number(value.toFixed(6)))
}
