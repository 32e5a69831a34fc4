import { jsonOrText } from '../../kit/index.ts'
import { isJsonObject, type Json, type ToolDefinition } from '../../schema/index.ts'
import { formatNumber, miscount } from './arithmetic.ts'
import { findTool, formatAnswer, parameterNamed, type Solver, type SolverContext } from './solver.ts'

/** After so many failures, a part or a page is left out. */
const maxTries = 3

interface Part {
  readonly tool: string
  readonly parameter: string
  readonly task: string
}

/** For a list of `- <tool>: <task>`: hands each task to its tool, all at once, and subtracts or adds up the numbers that come back. */
export const orchestrator: Solver = {
  name: 'orchestrator',
  solve(context) {
    const parts = [...partsIn(context)]
    if (parts.length === 0) return undefined
    const found = parts.map((part) => answersTo(context, part))
    const missing = parts.filter((_, index) => {
      const { numbers = [], tries = 0 } = found[index] ?? {}
      return numbers.length === 0 && tries < maxTries
    })
    if (missing.length > 0) {
      return { calls: missing.map(({ tool, parameter, task }) => ({ name: tool, arguments: { [parameter]: task } })) }
    }
    const numbers = found.map((each) => each.numbers[0] ?? 0)
    const [first = 0, ...rest] = numbers
    const isDifference = /\bsubtract\b/i.test(context.question)
    const value = isDifference ? rest.reduce((sum, number) => sum + number, -first) : numbers.reduce((a, b) => a + b)
    return { text: formatAnswer(context, formatNumber(context.isRight ? value : miscount(context, value))) }
  },
}

function* partsIn({ question, tools }: SolverContext): Generator<Part, void, void> {
  for (const [, name, task = ''] of question.matchAll(/^\s*[-*•]\s+`?([\w-]+)`?:\s+(.+)$/gm)) {
    const named = tools.filter((tool) => tool.function.name === name)
    const tool = findTool(named, ['string'], () => true)
    if (tool) yield { tool: tool.name, parameter: tool.parameter, task: task.trim() }
  }
}

function answersTo(context: SolverContext, { tool, parameter, task }: Part) {
  const results = context.results().filter((each) => each.name === tool && argument(each.arguments, parameter) === task)
  const numbers = results.flatMap(({ text }) => (isFailure(text) ? [] : (lastNumber(text) ?? [])))
  return { tries: results.length, numbers }
}

/** How many pages are read in one turn. */
const pagesAtOnce = 10

/** For a question that says to search, and tools that search and read: reads all that is found, and adds up what it is asked for. */
export const librarian: Solver = {
  name: 'librarian',
  solve(context) {
    if (!/\bsearch/i.test(`${context.system}\n${context.question}`)) return undefined
    const archive = archiveIn(context)
    if (!archive) return undefined
    const { search, read, query } = archive
    const lists = context.results().filter(({ name }) => name === search.name)
    const listed = lists.filter(({ text }) => !isFailure(text))
    if (listed.length === 0 && lists.length < maxTries) {
      return { calls: [{ name: search.name, arguments: { [search.parameter]: query } }] }
    }
    const later = pagesToCome(context, search.name, lists)
    if (later.length > 0) {
      return { calls: later.map((page) => ({ name: search.name, arguments: { [search.parameter]: query, page } })) }
    }
    const ids = listed.flatMap(({ text }) => Array.from(text.matchAll(/^\s*[-*]\s+([\w./-]+)/gm), ([, id = '']) => id))
    if (ids.length === 0) return undefined
    const pages = pagesRead(context, read)
    const open = [...new Set(ids)].filter((id) => !pages.has(id))
    if (open.length > 0) {
      return {
        calls: open.slice(0, pagesAtOnce).map((id) => ({ name: read.name, arguments: { [read.parameter]: id } })),
      }
    }
    const year = /\bin (\d{4})\b/.exec(context.question)?.[1]
    const value = [...pages.values()].reduce((sum, text) => sum + (numberOf(year, text) ?? 0), 0)
    return { text: formatAnswer(context, formatNumber(context.isRight ? value : miscount(context, value))) }
  },
}

/** For a question that says to follow pages: searches, and reads the page that the last one names, until one names none. */
export const follower: Solver = {
  name: 'follower',
  solve(context) {
    const archive = /\bfollow\b/i.test(context.question) ? archiveIn(context) : undefined
    if (!archive) return undefined
    const { search, read, query } = archive
    const results = context.results()
    const triesOf = (tool: typeof read, value: string): number =>
      results.filter((each) => each.name === tool.name && argument(each.arguments, tool.parameter) === value).length
    const last = results.findLast(({ text }) => !isFailure(text))
    const [tool, value] = last ? [read, /(?:^\s*[-*]|\bsee)\s+([\w/-]+)/im.exec(last.text)?.[1]] : [search, query]
    if (value !== undefined && triesOf(tool, value) < maxTries) {
      return { calls: [{ name: tool.name, arguments: { [tool.parameter]: value } }] }
    }
    const found = last && lastNumber(last.text)
    if (found === undefined) return undefined
    return { text: formatAnswer(context, formatNumber(context.isRight ? found : miscount(context, found))) }
  },
}

function archiveIn({ tools, question }: SolverContext) {
  const search = findTool(tools, ['string'], (name) => /search/i.test(name))
  const read = findTool(tools, ['string'], (name) => /^(?:read|open|fetch)/i.test(name))
  return search && read && { search, read, query: /"([^"]+)"/.exec(question)?.[1] ?? question }
}

/** The further pages of a list that says how many there are, if the tool takes the number of one. */
function pagesToCome(
  { tools }: SolverContext,
  search: string,
  lists: readonly { readonly arguments: string; readonly text: string }[],
): readonly number[] {
  const tool: ToolDefinition | undefined = tools.find((each) => each.function.name === search)
  if (!tool || !parameterNamed(tool, 'page')) return []
  const last = Math.max(1, ...lists.map(({ text }) => Number(/\bpage \d+ of (\d+)\b/i.exec(text)?.[1] ?? 1)))
  const asked = new Set(lists.map(({ arguments: args }) => argument(args, 'page') ?? 1))
  return Array.from({ length: last }, (_, index) => index + 1).filter((page) => !asked.has(page))
}

/** The pages by their ids; one that could not be read is empty. */
function pagesRead(context: SolverContext, read: { readonly name: string; readonly parameter: string }) {
  const results = context.results().filter(({ name }) => name === read.name)
  const byId = Map.groupBy(results, ({ arguments: args }) => argument(args, read.parameter))
  const pages = new Map<Json | undefined, string>()
  for (const [id, tries] of byId) {
    const good = tries.find(({ text }) => !isFailure(text))
    if (good || tries.length >= maxTries) pages.set(id, good?.text ?? '')
  }
  return pages
}

function isFailure(text: string): boolean {
  return text.startsWith('Error')
}

function argument(args: string, name: string): Json | undefined {
  const given = jsonOrText(args) as Json
  return isJsonObject(given) ? given[name] : undefined
}

const number = /-?\d[\d,]*(?:\.\d+)?/

function numberOf(year: string | undefined, text: string): number | undefined {
  if (year === undefined) return lastNumber(text)
  const place = text.search(new RegExp(`\\b${year}\\b`))
  const found = place === -1 ? undefined : number.exec(text.slice(place + year.length))?.[0]
  return found === undefined ? undefined : Number(found.replaceAll(',', ''))
}

function lastNumber(text: string): number | undefined {
  const found = text.match(new RegExp(number, 'g'))?.at(-1)
  return found === undefined ? undefined : Number(found.replaceAll(',', ''))
}
