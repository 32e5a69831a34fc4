import { formatNumber } from '../_expression.ts'
import { formatAnswer } from './_answer-format.ts'
import { miscount } from './_calculate.ts'
import type { Solver } from './solver.ts'

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
