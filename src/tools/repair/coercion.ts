import { isDeepStrictEqual } from 'node:util'
import type { ErrorObject } from 'ajv'
import { lostNumber } from '../../kit/index.ts'
import { isJsonList, isJsonObject, type Json, type JsonObject } from '../../schema/index.ts'
import { pathOf } from '../json-schema-parameters.ts'
import { parseIfJson } from './loose-json.ts'

/** How often the arguments of one call are checked. Alternatives within alternatives multiply. */
const maxChecks = 64
/** How many errors of one check are looked at. */
const maxErrors = 20_000
/** No number and no choice is longer. */
const maxWordChars = 1_000
/** How many digits a double keeps for certain. */
const certainDigits = 15
/** JSON's numbers. A leading zero makes it a code; a space or a comma makes it a text. */
const numberText = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d{1,3})?$/
const numberTexts = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g

/** A value of the right type that breaks one of these rules is what the model meant: the tool tells it so. */
const rangeKeywords = new Set([
  'minimum',
  'maximum',
  'exclusiveMinimum',
  'exclusiveMaximum',
  'multipleOf',
  'minLength',
  'maxLength',
  'pattern',
  'minItems',
  'maxItems',
  'uniqueItems',
])

/** Values to put in the place of those that do not fit, by their place. */
interface Fix {
  /** The values that may stand here instead; empty if only something below is to be replaced. */
  readonly candidates: Json[]
  readonly below: Map<string, Fix>
}

/**
 * Converts values that do not fit their schema to the only value that fits and means the same: where the check reports an error,
 * it tries what the schema asks for, and checks again. If nothing fits, or more than one value does, it finds nothing. One per
 * call, as it knows how the numbers in the call were written.
 */
export class Coercion {
  readonly #check: (args: JsonObject) => readonly ErrorObject[]
  readonly #json: string
  #checks = 0
  #numbers: ReadonlySet<string> | undefined

  constructor(check: (args: JsonObject) => readonly ErrorObject[], json: string) {
    this.#check = check
    this.#json = json
  }

  /** The value to take instead of one parameter; undefined if it fits, or if there is not exactly one. */
  instead(args: JsonObject, key: string): Json | undefined {
    const found: Json[] = []
    this.#search(args, key, found)
    const [only] = found
    return found.length === 1 && this.#checks <= maxChecks && only !== args[key] ? only : undefined
  }

  #search(args: JsonObject, key: string, found: Json[]): void {
    this.#checks += 1
    if (this.#checks > maxChecks || found.length > 1) return
    const errors = this.#check(args).filter(
      ({ instancePath, keyword }) => pathOf(instancePath)[0] === key && !rangeKeywords.has(keyword),
    )
    const value = args[key] ?? null
    if (errors.length === 0) {
      if (!found.some((other) => isDeepStrictEqual(other, value))) found.push(value)
      return
    }
    const fix = this.#fixOf(errors)
    if (!fix) return
    for (const next of variants(value, fix)) this.#search({ ...args, [key]: next }, key, found)
  }

  #fixOf(errors: readonly ErrorObject[]): Fix | undefined {
    // Alternatives often ask for the same at the same place.
    const different = new Map(
      errors.slice(0, maxErrors).map((error) => [error.instancePath + JSON.stringify(error.params), error]),
    )
    let root: Fix | undefined
    for (const error of different.values()) {
      const candidates = this.#candidates(error)
      if (candidates.length === 0) continue
      let fix = (root ??= emptyFix())
      for (const step of pathOf(error.instancePath).slice(1)) {
        const inner = fix.below.get(step) ?? emptyFix()
        fix.below.set(step, inner)
        fix = inner
      }
      for (const candidate of candidates)
        if (!fix.candidates.some((other) => isSame(other, candidate))) fix.candidates.push(candidate)
    }
    return root
  }

  #candidates({ keyword, params, data }: ErrorObject): Json[] {
    const value = data as Json
    const wanted = params as Readonly<Record<string, unknown>>
    if (keyword === 'type') return [wanted['type']].flat().flatMap((type) => this.#asType(value, String(type)))
    if (keyword !== 'enum' && keyword !== 'const') return []
    const choices = keyword === 'const' ? [wanted['allowedValue']] : [wanted['allowedValues']].flat()
    const types = new Set(choices.map((choice) => typeof choice))
    return [...sameButForCase(value, choices), ...Array.from(types).flatMap((type) => this.#asType(value, type))]
  }

  #asType(value: Json, type: string): Json[] {
    switch (type) {
      case 'boolean':
      case 'number':
      case 'integer':
        return isWord(value) ? wordAs(value.trim(), type) : []
      case 'string':
        return typeof value === 'number' && this.#isWrittenAs(String(value)) ? [String(value)] : []
      case 'object':
        return jsonIn(value, '{')
      case 'array':
        return asList(value)
      default:
        return []
    }
  }

  /** Whether a number was written as this text: `1.10` is a version and not 1.1, and a double cannot hold every integer. */
  #isWrittenAs(text: string): boolean {
    this.#numbers ??= new Set(this.#json.match(numberTexts))
    return this.#numbers.has(text)
  }
}

/** The values that come of a fix. Where only one is possible everywhere, all replacements are made at once. */
function* variants(value: Json, fix: Fix): Generator<Json, void, undefined> {
  if (isUnique(fix)) {
    yield replaced(value, fix)
    return
  }
  yield* fix.candidates
  if (fix.candidates.length > 0) {
    if (fix.below.size > 0) yield* variants(value, { ...fix, candidates: [] })
    return
  }
  // The first place with a choice; the others follow with the next check.
  for (const [step, inner] of fix.below) {
    if (isUnique(inner)) continue
    const member = memberOf(value, step)
    for (const next of variants(member, inner))
      yield replaced(value, { candidates: [], below: new Map([[step, { candidates: [next], below: new Map() }]]) })
    return
  }
}

function isUnique({ candidates, below }: Fix): boolean {
  if (candidates.length > 0) return candidates.length === 1 && below.size === 0
  return below.values().every(isUnique)
}

function replaced(value: Json, { candidates: [candidate], below }: Fix): Json {
  if (candidate !== undefined) return candidate
  if (isJsonList(value)) {
    return value.map((item, index) => {
      const inner = below.get(String(index))
      return inner ? replaced(item, inner) : item
    })
  }
  if (!isJsonObject(value)) return value
  return Object.fromEntries(
    Object.entries(value).map(([key, member = null]) => {
      const inner = below.get(key)
      return [key, inner ? replaced(member, inner) : member]
    }),
  )
}

function memberOf(value: Json, step: string): Json {
  if (isJsonList(value)) return value[Number(step)] ?? null
  return isJsonObject(value) && Object.hasOwn(value, step) ? (value[step] ?? null) : null
}

function emptyFix(): Fix {
  return { candidates: [], below: new Map() }
}

/** Candidates for one place: of lists and of objects there is only one each. */
function isSame(left: Json, right: Json): boolean {
  if (isJsonList(left) || isJsonList(right)) return isJsonList(left) && isJsonList(right)
  return left === right || (isJsonObject(left) && isJsonObject(right))
}

function wordAs(word: string, type: 'boolean' | 'number' | 'integer'): Json[] {
  if (type === 'boolean') return /^(?:true|false)$/i.test(word) ? [word.toLowerCase() === 'true'] : []
  if (!numberText.test(word)) return []
  const value = Number(word)
  const isExact = Number.isInteger(value) ? Number.isSafeInteger(value) : digitsIn(word) <= certainDigits
  return isExact && Number.isFinite(value) ? [value] : []
}

function digitsIn(text: string): number {
  return text.replace(/[eE].*$/, '').replaceAll(/\D/g, '').length
}

function sameButForCase(value: Json, choices: readonly unknown[]): string[] {
  if (!isWord(value)) return []
  const wanted = value.trim().toLowerCase()
  return choices.filter((choice) => typeof choice === 'string').filter((choice) => choice.toLowerCase() === wanted)
}

/** The list that a value holds as text, or whose only item it is. */
function asList(value: Json): Json[] {
  if (value === null || isJsonList(value)) return []
  if (isText(value, '[')) return jsonIn(value, '[')
  // An empty text, or one with commas or lines, may stand for no item, one or many.
  return typeof value === 'string' && /^\s*$|[,\n]/.test(value) && !isText(value, '{') ? [] : [[value]]
}

function jsonIn(value: Json, start: '{' | '['): Json[] {
  if (!isText(value, start)) return []
  const inner = parseIfJson(value) as Json | undefined
  return inner === undefined || lostNumber(value, inner) || typeof inner !== 'object' || inner === null ? [] : [inner]
}

function isWord(value: Json): value is string {
  return typeof value === 'string' && value.length <= maxWordChars
}

function isText(value: Json, start: '{' | '['): value is string {
  return typeof value === 'string' && value.trimStart().startsWith(start)
}
