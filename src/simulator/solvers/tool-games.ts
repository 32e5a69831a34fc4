import { findExpression, formatNumber, miscount, numberIn } from './arithmetic.ts'
import { formatAnswer, findTool, type Solver, type SolverContext } from './solver.ts'

/** For a hidden number and a tool to guess it with: halves the range that the earlier answers leave. */
export const guessNumber: Solver = {
  name: 'guess-number',
  solve(context) {
    const tool = findTool(context.tools, ['integer', 'number'], (name) => /guess/i.test(name))
    if (!tool) return undefined
    const range = readRange(context)
    const left = narrow(context, range)
    if (left.found !== undefined) return { text: `The number is ${left.found}.` }
    const middle = Math.floor((left.low + left.high) / 2)
    if (context.isRight) return { calls: [{ name: tool.name, arguments: { [tool.parameter]: middle } }] }
    // A blunder is to stop and claim a number, or to guess without regard to the earlier answers.
    const anywhere = range.low + Math.floor(context.draw('anywhere') * (range.high - range.low + 1))
    if (context.draw('blunder') < 0.3) return { text: `I think the number is ${anywhere}.` }
    return { calls: [{ name: tool.name, arguments: { [tool.parameter]: anywhere } }] }
  },
}

interface Range {
  readonly low: number
  readonly high: number
}

function readRange(context: SolverContext): Range {
  for (const message of context.messages) {
    if (message.role === 'assistant' || message.role === 'tool' || typeof message.content !== 'string') continue
    const stated = /\b(?:between|from) (-?\d+) (?:and|to) (-?\d+)/i.exec(message.content)
    if (stated) return { low: Number(stated[1]), high: Number(stated[2]) }
  }
  return { low: 1, high: 100 }
}

/** The range that the answers so far leave. Errors of the tool do not change it. */
function narrow(context: SolverContext, range: Range): Range & { readonly found?: number } {
  let { low, high } = range
  for (const result of context.results('start')) {
    const guess = Number(/-?\d+/.exec(result.arguments)?.[0])
    if (Number.isNaN(guess)) continue
    if (/\b(?:correct|found it|that is it)\b/i.test(result.text)) return { low, high, found: guess }
    if (/\b(?:higher|too low)\b/i.test(result.text)) low = Math.max(low, guess + 1)
    else if (/\b(?:lower|too high)\b/i.test(result.text)) high = Math.min(high, guess - 1)
  }
  return low <= high ? { low, high } : range
}

const delegating = /delegate|subtask|sub_?agent|assign/i
/** After so many answers per part, the parts that are still missing are left out of the sum. */
const maxTriesPerPart = 3

/** For a list of expressions to add up and a tool that takes a task: hands out one part per call, all at once, and adds. */
export const delegate: Solver = {
  name: 'delegate',
  solve(context) {
    const tool = findTool(context.tools, ['string'], (name) => delegating.test(name))
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

const toolNames = ['convert', 'add_note', 'search_notes']

/** For a list of lengths, a tool that converts them and a notebook: converts all at once, notes, looks up, and adds. */
export const notebook: Solver = {
  name: 'notebook',
  solve(context) {
    const offered = new Set(context.tools.map((tool) => tool.function.name))
    const to = /\bto (\w+)/.exec(context.question)?.[1]
    if (to === undefined || !toolNames.every((name) => offered.has(name))) return undefined
    const results = context.results()
    const converted = results.filter(({ name }) => name === 'convert')
    if (converted.length === 0) {
      const slip = context.isRight ? 0 : 1
      const lengths = [...context.question.matchAll(/^- (\d+) (\w+)$/gm)].map(([, value, from = '']) => {
        return { value: Number(value) + slip, from, to }
      })
      return { calls: lengths.map((length) => ({ name: 'convert', arguments: length })) }
    }
    if (!results.some(({ name }) => name === 'add_note')) {
      return { calls: converted.map(({ text }) => ({ name: 'add_note', arguments: { note: `${text} ${to}` } })) }
    }
    const found = results.find(({ name }) => name === 'search_notes')
    if (!found) return { calls: [{ name: 'search_notes', arguments: { query: to } }] }
    let sum = 0
    for (const [number] of found.text.matchAll(/\d+/g)) sum += Number(number)
    return { text: formatAnswer(context, formatNumber(context.isRight ? sum : miscount(context, sum))) }
  },
}
