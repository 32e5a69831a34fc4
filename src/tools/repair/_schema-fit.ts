import { isJsonList, isJsonObject, type Json } from '../../schema/index.ts'
import type { JsonSchema } from '../json-schema.ts'

/** How deep the check goes. A schema may refer to itself, so this is not only the depth of the value. */
const maxDepth = 64
/** The steps for one call: some ten milliseconds. A schema may offer alternatives within alternatives, which multiply. */
export const maxSteps = 200_000

/**
 * Whether values have the types, names and choices that a JSON Schema asks for: what a repair can change. It errs on one side
 * only: a value that validates always fits. Ranges, patterns, formats, conditions and references to other documents are not
 * looked at; the tool's own validation, which follows, checks those.
 */
export class SchemaFit {
  readonly #root: JsonSchema
  #steps = 0

  constructor(root: JsonSchema) {
    this.#root = root
  }

  get steps(): number {
    return this.#steps
  }

  /** Whether the steps are used up: from then on everything is said to fit, and earlier findings are not reliable. */
  get isSpent(): boolean {
    return this.#steps >= maxSteps
  }

  fits(value: Json | undefined, schema: unknown, depth = 0): boolean {
    if (schema === false) return false
    const plain = this.resolve(schema)
    if (!plain || depth > maxDepth || !this.spend(1)) return true
    const inner = depth + 1
    if (!hasWantedType(value, plain) || !this.#isChosen(value, plain)) return false
    if (listIn(plain, 'allOf').some((part) => !this.fits(value, part, inner))) return false
    const options = optionsOf(plain)
    if (options.length > 0 && !options.some((option) => this.fits(value, option, inner))) return false
    if (isJsonList(value)) return value.every((item, index) => this.fits(item, itemSchema(plain, index), inner))
    return !isJsonObject(value) || this.#fitsObject(value, plain, inner)
  }

  /** A schema with its references followed, within the document; undefined if it says nothing. */
  resolve(schema: unknown): JsonSchema | undefined {
    let current = schema
    for (let hops = 0; hops < maxDepth; hops += 1) {
      if (!isJsonObject(current)) return undefined
      const reference: unknown = current['$ref']
      // Up to draft 7 keywords beside a reference had no meaning, so they are ignored.
      if (typeof reference !== 'string') return current
      if (!this.spend(1)) return undefined
      current = pointedAt(this.#root, reference)
    }
    return undefined
  }

  /** The schema of one member of an object; undefined if there is none. */
  memberSchema(schema: unknown, key: string, depth = 0): unknown {
    const plain = this.resolve(schema)
    if (!plain || depth > maxDepth || !this.spend(1)) return undefined
    const declared = own(plain['properties'], key)
    if (declared !== undefined) return declared
    for (const part of listIn(plain, 'allOf')) {
      const found = this.memberSchema(part, key, depth + 1)
      if (found !== undefined) return found
    }
    return undefined
  }

  #fitsObject(value: { readonly [key: string]: Json | undefined }, schema: JsonSchema, depth: number): boolean {
    if (listIn(schema, 'required').some((key) => typeof key === 'string' && !Object.hasOwn(value, key))) return false
    const { properties, additionalProperties = true } = schema
    // With patterns, these decide which other names are allowed.
    const others = schema['patternProperties'] === undefined ? additionalProperties : true
    for (const key in value) {
      if (!this.fits(value[key], own(properties, key) ?? others, depth)) return false
    }
    return true
  }

  #isChosen(value: Json | undefined, schema: JsonSchema): boolean {
    const choices = choicesOf(schema)
    return !choices || choices.some((choice) => this.isSame(value, choice))
  }

  isSame(left: unknown, right: unknown, depth = 0): boolean {
    if (left === right || depth > maxDepth || !this.spend(1)) return true
    if (Array.isArray(left) && Array.isArray(right)) {
      return left.length === right.length && left.every((item, index) => this.isSame(item, right[index], depth + 1))
    }
    if (!isJsonObject(left) || !isJsonObject(right)) return false
    const keys = Object.keys(left)
    if (keys.length !== Object.keys(right).length) return false
    return keys.every((key) => Object.hasOwn(right, key) && this.isSame(left[key], right[key], depth + 1))
  }

  /** Counts work done elsewhere; false when no steps are left. */
  spend(steps: number): boolean {
    if (this.isSpent) return false
    this.#steps += steps
    return true
  }
}

/** The types that a schema asks for; undefined if it allows any. */
export function wantedTypes(schema: JsonSchema): readonly string[] | undefined {
  const { type } = schema
  if (typeof type === 'string') return [type]
  return Array.isArray(type) ? type.filter((name) => typeof name === 'string') : undefined
}

/** The values that a schema lists; undefined if it allows any. */
export function choicesOf(schema: JsonSchema): readonly unknown[] | undefined {
  if ('const' in schema) return [schema['const']]
  const choices = schema['enum']
  return Array.isArray(choices) ? choices : undefined
}

/** The alternatives of a schema. `oneOf` is read as `anyOf`: a repair does not judge whether two of them fit. */
export function optionsOf(schema: JsonSchema): readonly unknown[] {
  const options = listIn(schema, 'anyOf')
  return options.length > 0 ? options : listIn(schema, 'oneOf')
}

export function listIn(schema: JsonSchema, keyword: string): readonly unknown[] {
  const list = schema[keyword]
  return Array.isArray(list) ? list : []
}

/** The schema of an item; true where an item may be anything. */
export function itemSchema(schema: JsonSchema, index: number): unknown {
  const { items = true, prefixItems } = schema
  // Lists with a schema for each place, by the newer keyword and by the older one.
  const places: unknown = Array.isArray(prefixItems) ? prefixItems : items
  if (!Array.isArray(places)) return items
  return index < places.length ? places[index] : true
}

function own(members: unknown, key: string): unknown {
  return isJsonObject(members) && Object.hasOwn(members, key) ? members[key] : undefined
}

function hasWantedType(value: Json | undefined, schema: JsonSchema): boolean {
  const wanted = wantedTypes(schema)
  if (!wanted || value === undefined) return true
  return wanted.some((type) => isOfType(value, type)) || (value === null && schema['nullable'] === true)
}

function isOfType(value: Json, type: string): boolean {
  switch (type) {
    case 'null':
      return value === null
    case 'integer':
      return typeof value === 'number' && Number.isInteger(value)
    case 'array':
      return Array.isArray(value)
    case 'object':
      return isJsonObject(value)
    case 'number':
    case 'string':
    case 'boolean':
      return typeof value === type
    default:
      // Not a type of JSON Schema: its author may accept anything.
      return true
  }
}

/** The target of a reference such as `#/$defs/City`: only within the document, and only own members. */
function pointedAt(root: JsonSchema, reference: string): unknown {
  if (reference === '#') return root
  if (!reference.startsWith('#/')) return undefined
  let current: unknown = root
  for (const step of reference.slice(2).split('/')) {
    const key = decoded(step).replaceAll('~1', '/').replaceAll('~0', '~')
    current = Array.isArray(current) ? current[Number(key)] : own(current, key)
  }
  return current
}

function decoded(step: string): string {
  try {
    return decodeURIComponent(step)
  } catch {
    return step
  }
}
