import type { ToolDefinition } from '../../schema/index.ts'
import { evaluate, formatNumber } from '../_expression.ts'
import { formatAnswer } from './_answer-format.ts'
import { soleParameter } from './_tool-shape.ts'
import type { SolverContext } from './solver-context.ts'
import type { SolverReply } from './solver.ts'

/** How often a calculator that answers with errors is tried; after that the sum is done without it. */
const maxToolTries = 3

/**
 * Works out one expression: with a calculator if one is offered, otherwise without. What to calculate is a decision, which may be
 * wrong; reading the calculator's result is none.
 */
export function calculate(context: SolverContext, expression: string): SolverReply {
  const results = context.results()
  const result = results.map(({ text }) => numberIn(text)).findLast((number) => number !== undefined)
  if (result !== undefined) return { text: formatAnswer(context, result) }
  const calculator = findCalculator(context.tools)
  if (calculator && results.length < maxToolTries) {
    const written = context.isRight ? expression : misread(context, expression)
    return { calls: [{ name: calculator.tool, arguments: { [calculator.parameter]: written } }] }
  }
  const value = evaluate(expression) ?? 0
  return { text: formatAnswer(context, formatNumber(context.isRight ? value : miscount(context, value))) }
}

/** The number that a tool answered, alone or as `result: 42`; undefined for errors and anything longer. */
export function numberIn(text: string): string | undefined {
  const pattern = /^[\s"'{[]*(?:(?:result|answer|value)["']?\s*[:=]\s*["']?)?(-?\d+(?:\.\d+)?)[\s"'}\].]*$/i
  return text.length > 200 ? undefined : pattern.exec(text)?.[1]
}

function findCalculator(tools: readonly ToolDefinition[]): { tool: string; parameter: string } | undefined {
  for (const tool of tools) {
    const parameter = soleParameter(tool, ['string'])
    if (parameter === undefined) continue
    const { name } = tool.function
    if (/^(expression|formula|equation|calculation)$/i.test(parameter) || /calc|math|arithmetic/i.test(name)) {
      return { tool: name, parameter }
    }
  }
  return undefined
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
