import { isJsonList, isJsonObject, type Json, type JsonObject } from '../../schema/index.ts'
import type { JsonSchema } from '../json-schema.ts'
import { parseIfJson } from './_parse-if-json.ts'
import { choicesOf, itemSchema, listIn, optionsOf, wantedTypes, type SchemaFit } from './_schema-fit.ts'

/** Values that are nested deeper, or whose schemas refer on and on, are left as they are. */
const maxDepth = 32
/** No number and no choice is longer. */
const maxWordChars = 1_000
/** Text that is read as JSON, to one step of the fit's. */
const charsPerStep = 32
/** A double keeps this many digits for certain. */
const certainDigits = 15
/** JSON's numbers. A leading zero makes it a code, a space or a comma a text. */
const numberText = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d{1,3})?$/
const numberTexts = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g

/**
 * Converts values that do not fit their schema to the one value that does and says the same. Where there is none, or more
 * than one, it finds nothing. One for each call: it knows how the numbers in the call were written.
 */
export class Coercion {
  readonly #fit: SchemaFit
  readonly #json: string
  #numbers: ReadonlySet<string> | undefined
  /** Something could be read in two ways, be it in one of several alternatives: then the others prove nothing. */
  #isAmbiguous = false

  constructor(fit: SchemaFit, json: string) {
    this.#fit = fit
    this.#json = json
  }

  /** What to take instead of a value that does not fit; undefined if it cannot be said. */
  instead(value: Json, schema: unknown): Json | undefined {
    this.#isAmbiguous = false
    const found = this.#instead(value, schema, 0)
    // What was found out with the last of the steps may be wrong.
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

  /** The list or the object that a value is, or holds as a text, or is the only item of. */
  #structure(value: Json, type: string): readonly Json[] | JsonObject | undefined {
    if (type === 'object') return isJsonObject(value) ? value : this.#jsonIn(value, '{')
    if (type !== 'array' || value === null) return undefined
    if (isJsonList(value)) return value
    if (isText(value, '[')) return this.#jsonIn(value, '[')
    // Nothing, or several with commas between them, may be no item, one or many.
    return typeof value === 'string' && /^\s*$|[,\n]/.test(value) && !isText(value, '{') ? undefined : [value]
  }

  /** With what does not fit in it replaced. */
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
    return isJsonObject(inner) || isList(inner) ? inner : undefined
  }

  /** Not so for `1.10`, which is a version and not 1.1, nor for an integer that a double cannot hold. */
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
