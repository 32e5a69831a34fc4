import { isJsonObject, type Json, type JsonObject, type ToolRepair } from '../../schema/index.ts'
import type { RepairedArguments } from './parameter-repairs.ts'
import { parseIfJson } from './loose-json.ts'
import { type CallRepairer, recorded, type RepairTarget } from './call-repair.ts'
import type { RepairRules, RetryRule, ValueFallback, ValueRewrite } from './repair-rules.ts'

/** A longer result was not empty. */
const maxResultChars = 64 * 1024

/** Repairs of values that models often get wrong for one tool: they fit its schema, but are wrong all the same. */
export class ValueRepairs {
  readonly #fallbacks: readonly ValueFallback[]
  readonly #rewrites: readonly ValueRewrite[]
  readonly #retries: readonly RetryRule[]

  constructor({ name, serverToolName }: RepairTarget, rules: RepairRules) {
    const isOwn = ({ tool }: { readonly tool: string }): boolean => tool === name || tool === serverToolName
    this.#fallbacks = (rules.valueFallback ?? []).filter(isOwn)
    this.#rewrites = (rules.valueRewrite ?? []).filter(isOwn)
    this.#retries = (rules.retryAfter ?? []).filter(isOwn)
  }

  /** `find` returns the tool to be called instead, if there is one. The first rule that matches a parameter counts. */
  fallBack<Target extends RepairTarget>(
    args: JsonObject,
    find: (tool: string) => Target | undefined,
  ): RepairedArguments & { readonly callInstead?: Target } {
    const repairs: ToolRepair[] = []
    const done = new Set<string>()
    let current = args
    for (const { action, parameter, when } of this.#fallbacks) {
      const value = own(current, parameter)
      if (value === undefined || done.has(parameter) || !matches(value, when)) continue
      const made = { rule: 'value_fallback', at: parameter, before: recorded(value) } as const
      if ('callInstead' in action) {
        const target = find(action.callInstead)
        if (!target) continue
        repairs.push({ ...made, after: { tool: target.name } })
        return { args: without(current, parameter), repairs, callInstead: target }
      }
      done.add(parameter)
      const after = 'replaceBy' in action ? action.replaceBy : null
      current = 'replaceBy' in action ? withValue(current, parameter, after) : without(current, parameter)
      repairs.push({ ...made, after: recorded(after) })
    }
    return { args: current, repairs }
  }

  rewrite(args: JsonObject): RepairedArguments {
    const repairs: ToolRepair[] = []
    let current = args
    for (const rule of this.#rewrites) {
      const before = own(current, rule.parameter)
      const after = rewritten(before, rule)
      if (before === undefined || after === undefined) continue
      repairs.push({ rule: 'value_rewrite', at: rule.parameter, before: recorded(before), after: recorded(after) })
      current = withValue(current, rule.parameter, after)
    }
    return { args: current, repairs }
  }

  /** The arguments for one more call, now that the tool's result is known; undefined if no rule asks for one. */
  retryAfter(args: JsonObject, resultText: string): ReturnType<CallRepairer['retryAfter']> {
    for (const { parameter, removeCharacters, whenResult } of this.#retries) {
      const before = own(args, parameter)
      if (typeof before !== 'string' || !isEmpty(resultText, whenResult)) continue
      const removed = new Set(removeCharacters)
      const kept = Array.from(before).filter((character) => !removed.has(character))
      const after = kept.join('').trim()
      if (after === '' || after === before.trim()) continue
      const repaired = { before: recorded(before), after: recorded(after) }
      return {
        arguments: withValue(args, parameter, after),
        repair: { rule: 'retry_without', at: parameter, ...repaired },
      }
    }
    return undefined
  }
}

function withValue(args: JsonObject, parameter: string, value: Json): JsonObject {
  return { ...args, [parameter]: value }
}

function without(args: JsonObject, parameter: string): JsonObject {
  return Object.fromEntries(Object.entries(args).filter(([key]) => key !== parameter))
}

function own(args: JsonObject, parameter: string): Json | undefined {
  return Object.hasOwn(args, parameter) ? args[parameter] : undefined
}

function matches(value: Json, { falsy, oneOf = [] }: ValueFallback['when']): boolean {
  if (falsy === true && (!value || (typeof value === 'string' && value.trim() === ''))) return true
  const wanted = folded(value)
  return oneOf.some((listed) => folded(listed) === wanted)
}

function folded(value: Json): Json {
  return typeof value === 'string' ? value.trim().toLowerCase() : value
}

function rewritten(value: Json | undefined, { stripPrefix, onlyIfRestStartsWith }: ValueRewrite): string | undefined {
  if (typeof value !== 'string' || !value.startsWith(stripPrefix)) return undefined
  const rest = value.slice(stripPrefix.length)
  if (rest === '' || onlyIfRestStartsWith?.some((start) => rest.startsWith(start)) === false) return undefined
  return rest
}

function isEmpty(resultText: string, when: RetryRule['whenResult']): boolean {
  if (resultText.length > maxResultChars) return false
  if ('contains' in when) {
    const lower = resultText.toLowerCase()
    return when.contains.some((text) => lower.includes(text.toLowerCase()))
  }
  let current = parseIfJson(resultText)
  for (const key of when.emptyAt.split('.')) current = isJsonObject(current) ? own(current, key) : undefined
  return isNothing(current)
}

/** Whether a value is empty. A missing value does not count: the result may have another form. */
function isNothing(value: unknown): boolean {
  if (value === null || value === '') return true
  if (Array.isArray(value)) return value.length === 0
  return isJsonObject(value) && Object.keys(value).length === 0
}
