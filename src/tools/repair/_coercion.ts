import { lostNumber } from '../../kit/index.ts'
import { isJsonList, isJsonObject, type Json, type JsonObject } from '../../schema/index.ts'
import type { JsonSchema } from '../json-schema.ts'
import { parseIfJson } from './_parse-if-json.ts'
import { choicesOf, itemSchema, listIn, optionsOf, wantedTypes, type SchemaFit } from './_schema-fit.ts'

/** Values that are nested deeper, or whose schemas have longer chains of references, are left as they are. */
const maxDepth = 32
/** No number and no choice is longer. */
const maxWordChars = 1_000
/** How many characters of text read as JSON count as one step of the fit. */
const charsPerStep = 32
/** How many digits a double keeps for certain. */
const certainDigits = 15
/** JSON's numbers. A leading zero makes it a code; a space or a comma makes it a text. */
const numberText = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d{1,3})?$/
const numberTexts = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g

/**
 * Converts values that do not fit their schema to the only value that fits and means the same. If there is none, or more than
 * one, it finds nothing. One per call, as it knows how the numbers in the call were written.
 */
export class Coercion {
  readonly #fit: SchemaFit
  readonly #json: string
  #numbers: ReadonlySet<string> | undefined
  /** Whether something could be read in two ways, even in one of several alternatives: then the others prove nothing. */
  #isAmbiguous = false

  constructor(fit: SchemaFit, json: string) {
    this.#fit = fit
    this.#json = json
  }

  /** The value to take instead of one that does not fit; undefined if that is not certain. */
  instead(value: Json, schema: unknown): Json | undefined {
    this.#isAmbiguous = false
    const found = this.#instead(value, schema, 0)
    // Findings after the last step may be wrong.
    return this.#fit.isSpent || this.#isAmbiguous ? undefined : found
  }

  #instead(value: Json, schema: unknown, depth: number): Json | undefined {
    const plain = this.#fit.resolve(schema)
    if (!plain || this.#fit.isSpent || this.#isAmbiguous || depth > maxDepth) return undefined
    let only: Json | undefined
    for (const candidate of this.#candidates(value, plain, depth + 1)) {
      if (only !== undefined && this.#fit.isSame(only, candidate)) continue
      if (!this.#fit.fits(candidate, plain)) continue
      if (only !== undefined) this.#isAmbiguous = true
      only = candidate
    }
    return only
  }

  *#candidates(value: Json, schema: JsonSchema, depth: number): Generator<Json, void, undefined> {
    for (const option of optionsOf(schema)) {
      const found = this.#instead(value, option, depth)
      if (found !== undefined) yield found
    }
    const parts = listIn(schema, 'allOf')
    if (parts.length > 0) {
      const found = this.#inAllParts(value, parts, depth)
      if (found !== undefined) yield found
    }
    const choices = choicesOf(schema) ?? []
    if (isWord(value)) yield* sameButForCase(value, choices)
    for (const type of wantedTypes(schema) ?? typesOf(choices)) {
      if (isWord(value)) yield* wordAs(value.trim(), type)
      if (type === 'string' && typeof value === 'number' && this.#isWrittenAs(String(value))) yield String(value)
      const structure = this.#structure(value, type)
      if (structure) yield this.#mended(structure, schema, depth)
    }
  }

  #inAllParts(value: Json, parts: readonly unknown[], depth: number): Json | undefined {
    let current = value
    for (const part of parts) {
      if (this.#fit.fits(current, part)) continue
      const found = this.#instead(current, part, depth)
      if (found === undefined) return undefined
      current = found
    }
    return current
  }

  /** The list or object that a value is, that it holds as text, or whose only item it is. */
  #structure(value: Json, type: string): readonly Json[] | JsonObject | undefined {
    if (type === 'object') return isJsonObject(value) ? value : this.#jsonIn(value, '{')
    if (type !== 'array' || value === null) return undefined
    if (isJsonList(value)) return value
    if (isText(value, '[')) return this.#jsonIn(value, '[')
    // An empty text, or one with commas or lines, may stand for no item, one or many.
    return typeof value === 'string' && /^\s*$|[,\n]/.test(value) && !isText(value, '{') ? undefined : [value]
  }

  /** The structure, with the parts that do not fit replaced. */
  #mended(value: readonly Json[] | JsonObject, schema: JsonSchema, depth: number): Json {
    const mend = (inner: Json, innerSchema: unknown): Json =>
      this.#fit.fits(inner, innerSchema) ? inner : (this.#instead(inner, innerSchema, depth) ?? inner)
    if (isList(value)) return value.map((item, index) => mend(item, itemSchema(schema, index)))
    const others: unknown = schema['additionalProperties']
    return Object.fromEntries(
      Object.entries(value).map(([key, inner = null]) => [
        key,
        mend(inner, this.#fit.memberSchema(schema, key) ?? others),
      ]),
    )
  }

  #jsonIn(value: Json, start: '{' | '['): readonly Json[] | JsonObject | undefined {
    if (!isText(value, start) || !this.#fit.spend(Math.ceil(value.length / charsPerStep))) return undefined
    const inner = parseIfJson(value)
    if (lostNumber(value, inner)) return undefined
    return isJsonObject(inner) || isList(inner) ? inner : undefined
  }

  /** Whether a number was written as this text: `1.10` is a version and not 1.1, and a double cannot hold every integer. */
  #isWrittenAs(text: string): boolean {
    this.#numbers ??= new Set(this.#json.match(numberTexts))
    return this.#numbers.has(text)
  }
}

function* wordAs(word: string, type: string): Generator<Json, void, undefined> {
  if (type === 'boolean' && /^(?:true|false)$/i.test(word)) yield word.toLowerCase() === 'true'
  if ((type !== 'number' && type !== 'integer') || !numberText.test(word)) return
  const value = Number(word)
  const isExact = Number.isInteger(value) ? Number.isSafeInteger(value) : digitsIn(word) <= certainDigits
  if (isExact && Number.isFinite(value)) yield value
}

function digitsIn(text: string): number {
  return text.replace(/[eE].*$/, '').replaceAll(/\D/g, '').length
}

function* sameButForCase(value: string, choices: readonly unknown[]): Generator<string, void, undefined> {
  const wanted = value.trim().toLowerCase()
  for (const choice of choices) if (typeof choice === 'string' && choice.toLowerCase() === wanted) yield choice
}

function typesOf(choices: readonly unknown[]): Iterable<string> {
  return new Set(choices.map((choice) => typeof choice))
}

function isWord(value: Json): value is string {
  return typeof value === 'string' && value.length <= maxWordChars
}

function isText(value: Json, start: '{' | '['): value is string {
  return typeof value === 'string' && value.trimStart().startsWith(start)
}

function isList(value: unknown): value is readonly Json[] {
  return Array.isArray(value)
}
