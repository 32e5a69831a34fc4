import type { ToolDefinition } from '../../schema/index.ts'
import { formatNumber } from '../_expression.ts'
import { formatAnswer } from './_answer-format.ts'
import { miscount, numberIn } from './_calculate.ts'
import { soleParameter } from './_tool-shape.ts'
import { findExpression } from './arithmetic.ts'
import type { SolverContext } from './solver-context.ts'
import type { Solver } from './solver.ts'

/** After so many answers per part, the parts that are still missing are left out of the sum. */
const maxTriesPerPart = 3

/** For a list of expressions to add up and a tool that takes a task: hands out one part per call, all at once, and adds. */
export const delegate: Solver = {
  name: 'delegate',
  solve(context) {
    const tool = findDelegate(context.tools)
    if (!tool) return undefined
    const parts = listedParts(context.question)
    if (parts.length < 2) return undefined
    const done = readAnswers(context, parts)
    const missing = parts.filter((part) => !done.has(part))
    if (missing.length === 0 || context.results().length >= parts.length * maxTriesPerPart) {
      let sum = 0
      for (const part of parts) sum += done.get(part) ?? 0
      return { text: formatAnswer(context, formatNumber(context.isRight ? sum : miscount(context, sum))) }
    }
    return {
      calls: missing.map((part) => ({
        name: tool.name,
        arguments: { [tool.parameter]: `What is ${part}? End with a line \`Answer: <number>\`.` },
      })),
    }
  },
}

function findDelegate(tools: readonly ToolDefinition[]): { name: string; parameter: string } | undefined {
  for (const tool of tools) {
    if (!/delegate|subtask|sub_?agent|assign/i.test(tool.function.name)) continue
    const parameter = soleParameter(tool, ['string'])
    if (parameter !== undefined) return { name: tool.function.name, parameter }
  }
  return undefined
}

/** The expressions of a bulleted or numbered list, each once. */
function listedParts(question: string): string[] {
  const parts = new Set<string>()
  for (const [, line] of question.matchAll(/^\s*(?:[-*•]|\d+[.)])\s+(.+)$/gm)) {
    const expression = findExpression(line ?? '')
    if (expression !== undefined) parts.add(expression)
  }
  return [...parts]
}

/** The value of each part that was answered with a number; the call's arguments say which part it was. */
function readAnswers(context: SolverContext, parts: readonly string[]): Map<string, number> {
  const answers = new Map<string, number>()
  for (const result of context.results()) {
    const number = numberIn(result.text.trimEnd().split('\n').at(-1) ?? '')
    const part = parts.find((candidate) => result.arguments.includes(`What is ${candidate}?`))
    if (part !== undefined && number !== undefined) answers.set(part, Number(number))
  }
  return answers
}
