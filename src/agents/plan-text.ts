import { andList, jsonOrText, nearestName } from '../kit/index.ts'
import { isJsonObject, type Json, type JsonObject, type ToolDefinition } from '../schema/index.ts'

export interface PlannedCall {
  readonly id: string
  readonly tool: string
  readonly arguments: JsonObject
  /** The calls whose results its arguments refer to. */
  readonly needs: readonly string[]
}

/** Calls in waves: each wave needs only results of earlier ones. Or why a text is no plan, in words for the model. */
export type ReadPlan = { readonly waves: readonly (readonly PlannedCall[])[] } | { readonly problem: string }

export interface PlanRules {
  readonly tools: readonly ToolDefinition[]
  readonly maxCalls: number
}

export function planRequest({ tools, maxCalls }: PlanRules): string {
  const described = tools.map(({ function: { name, description, parameters } }) =>
    JSON.stringify({ name, ...(description !== undefined && { description }), parameters }),
  )
  return `Before you answer, plan the tool calls that you need. None is made yet. The tools, one on each line, with a JSON Schema for their parameters:

${described.join('\n')}

Reply with the plan alone, a JSON array with at most ${maxCalls} calls:

[{"id": "E1", "tool": "the tool", "arguments": {"parameter": "value"}}]

To use the result of one call in another, write #E1 in a string of its arguments. Calls that do not need each other are made at the same time. If you need no tool, reply with [].`
}

export function planFeedback(problem: string): string {
  return `That is not a plan that can be carried out: ${problem}. Reply with the corrected JSON array alone.`
}

export function readPlan(text: string, rules: PlanRules): ReadPlan {
  const items = listIn(text)
  if (!items) return { problem: 'there is no JSON array in it' }
  if (items.length > rules.maxCalls) {
    return { problem: `it has ${items.length} calls, and at most ${rules.maxCalls} are allowed` }
  }
  const calls: PlannedCall[] = []
  for (const [index, item] of items.entries()) {
    const read = readCall(item, index, rules.tools)
    if ('problem' in read) return read
    if (calls.some(({ id }) => id === read.id)) return { problem: `two calls have the id ${read.id}` }
    calls.push(read)
  }
  return inWaves(calls)
}

/** The array of a reply that is one, has one in a fence or among words, or wraps one in an object. */
function listIn(text: string): readonly Json[] | undefined {
  const fenced = /```\w*\n([\s\S]*?)```/.exec(text)?.[1] ?? ''
  const bare = text.slice(text.indexOf('['), text.lastIndexOf(']') + 1)
  for (const candidate of [text, fenced, bare]) {
    const value = jsonOrText(candidate.trim()) as Json
    const list = isJsonObject(value) ? Object.values(value).find(Array.isArray) : value
    if (Array.isArray(list)) return list
  }
  return undefined
}

function readCall(
  item: Json,
  index: number,
  tools: readonly ToolDefinition[],
): (Omit<PlannedCall, 'needs'> & { readonly needs: readonly string[] }) | { readonly problem: string } {
  const which = `call ${index + 1}`
  if (!isJsonObject(item)) return { problem: `${which} is not an object` }
  const { id = `E${index + 1}`, tool = item['name'], arguments: given = {} } = item
  if (typeof id !== 'string' || !/^#?[A-Za-z]\w*$/.test(id)) {
    return { problem: `the id of ${which} must be a text such as E${index + 1}` }
  }
  if (typeof tool !== 'string') return { problem: `${which} names no tool` }
  const names = tools.map((each) => each.function.name)
  if (!names.includes(tool)) {
    const nearest = nearestName(tool, names)
    const hint = nearest === undefined ? `the tools are ${andList(names)}` : `did you mean ${nearest}?`
    return { problem: `${which} names the tool ${tool}, which does not exist; ${hint}` }
  }
  // Models that are used to the APIs write the arguments as a text.
  const args = typeof given === 'string' ? (jsonOrText(given) as Json) : given
  if (!isJsonObject(args)) return { problem: `the arguments of ${which} are not an object` }
  if (isDeeperThan(args, maxDepth))
    return { problem: `the arguments of ${which} are nested more than ${maxDepth} deep` }
  return { id: id.replace('#', ''), tool, arguments: args, needs: [...referencesIn(args)] }
}

/** Deeper arguments are a model's repetitions: no tool takes them, and a stack is not deep enough for them. */
const maxDepth = 100

function isDeeperThan(value: Json | undefined, depth: number): boolean {
  if (typeof value !== 'object' || value === null) return false
  return depth === 0 || Object.values(value).some((each) => isDeeperThan(each, depth - 1))
}

const reference = /#([A-Za-z]\w*)/g

function* referencesIn(value: Json | undefined): Generator<string, void, void> {
  if (typeof value === 'string') for (const [, id = ''] of value.matchAll(reference)) yield id
  else if (typeof value === 'object' && value !== null)
    for (const each of Object.values(value)) yield* referencesIn(each)
}

function inWaves(planned: readonly PlannedCall[]): ReadPlan {
  const ids = new Set(planned.map(({ id }) => id))
  const calls: PlannedCall[] = []
  for (const call of planned) {
    // Not every word behind a # is a reference: only one that looks like an id of a plan must be known.
    const unknown = call.needs.find((id) => !ids.has(id) && /^E\d+$/.test(id))
    if (unknown !== undefined) return { problem: `${call.id} refers to #${unknown}, and no call has that id` }
    calls.push({ ...call, needs: call.needs.filter((id) => ids.has(id)) })
  }
  const waves: PlannedCall[][] = []
  const placed = new Set<string>()
  let open = calls
  while (open.length > 0) {
    const wave = open.filter(({ needs }) => needs.every((id) => placed.has(id)))
    if (wave.length === 0) {
      return { problem: `${andList(open.map(({ id }) => id))} wait for each other's results` }
    }
    waves.push(wave)
    for (const { id } of wave) placed.add(id)
    open = open.filter((call) => !wave.includes(call))
  }
  return { waves }
}

/** The arguments with results in place of references. A text that is only a reference becomes the result as a whole. */
export function withResults(
  { tool: name, arguments: args, needs }: PlannedCall,
  results: ReadonlyMap<string, string>,
  tools: readonly ToolDefinition[],
): JsonObject {
  if (needs.length === 0) return args
  const fill = (value: Json | undefined, takesText: boolean): Json => {
    if (typeof value === 'string') {
      const whole = value.startsWith('#') ? results.get(value.slice(1)) : undefined
      if (whole !== undefined) return takesText ? whole : valueOf(whole)
      return value.replaceAll(reference, (written, id: string) => results.get(id) ?? written)
    }
    if (Array.isArray(value)) return value.map((each) => fill(each, false))
    return isJsonObject(value) ? filled(value, () => false) : (value ?? null)
  }
  const filled = (object: JsonObject, takesText: (key: string) => boolean): JsonObject =>
    Object.fromEntries(Object.entries(object).map(([key, value]) => [key, fill(value, takesText(key))]))
  const properties = tools.find((tool) => tool.function.name === name)?.function.parameters['properties']
  return filled(args, (key) => {
    const schema: unknown = isJsonObject(properties) ? properties[key] : undefined
    return typeof schema === 'object' && schema !== null && 'type' in schema && schema.type === 'string'
  })
}

/** JSON if it is some, unless a number would lose digits. */
function valueOf(text: string): Json {
  const value = jsonOrText(text) as Json
  return typeof value === 'number' && String(value) !== text.trim() ? text : value
}
