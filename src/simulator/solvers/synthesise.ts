import type { Json, JsonObject, ToolDefinition } from '../../schema/index.ts'
import type { SolverContext } from './solver.ts'

/** Schemas may refer to themselves: below this depth only the shortest values are made. */
const maxDepth = 6
/** A schema that never ends is left unsatisfied below this depth, or after so many values. */
const endlessDepth = 16
const maxValues = 2000
const maxItems = 16

/** Arguments that satisfy the tool's JSON schema as far as its common keywords say; required fields only. */
export function synthesiseArguments(context: SolverContext, tool: ToolDefinition): JsonObject {
  const { parameters } = tool.function
  const value = new Synthesis(context, parameters, 1).value(parameters, '', 0)
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as JsonObject) : {}
}

/** The smallest value that satisfies a schema as far as its common keywords say: required fields, shortest lists. */
export function synthesiseJson(context: SolverContext, schema: JsonObject): Json {
  return new Synthesis(context, schema, 0).value(schema, '', 0)
}

type Schema = Readonly<Record<string, unknown>>

class Synthesis {
  readonly #context: SolverContext
  readonly #root: Schema
  readonly #usualItems: number
  #made = 0

  constructor(context: SolverContext, root: Schema, usualItems: number) {
    this.#context = context
    this.#root = root
    this.#usualItems = usualItems
  }

  value(raw: unknown, path: string, depth: number): Json {
    const schema = this.#resolve(raw)
    this.#made += 1
    const isEndless = depth >= endlessDepth || this.#made > maxValues
    if ('const' in schema) return schema['const'] as Json
    if ('default' in schema) return schema['default'] as Json
    const { enum: choices, anyOf, oneOf, allOf } = schema
    if (isFilled(choices)) return this.#context.pick(choices, `enum${path}`) as Json
    for (const alternatives of [anyOf, oneOf, allOf]) {
      if (isFilled(alternatives) && !isEndless) {
        return this.value(this.#alternative(alternatives, depth), path, depth + 1)
      }
    }
    const { type } = schema
    switch (Array.isArray(type) ? type[0] : type) {
      case 'string':
        return this.#text(schema)
      case 'integer':
      case 'number':
        return boundedNumber(schema, this.#context.draw(`number${path}`))
      case 'boolean':
        return this.#context.draw(`boolean${path}`) < 0.5
      case 'array':
        return isEndless ? [] : this.#items(schema, path, depth)
      case 'null':
        return null
      default:
        return isEndless ? {} : this.#object(schema, path, depth)
    }
  }

  /** The first alternative; below `maxDepth`, where a schema may refer to itself, a plain one if there is any. */
  #alternative(alternatives: readonly unknown[], depth: number): unknown {
    if (depth < maxDepth) return alternatives[0]
    const isPlain = (raw: unknown): boolean => {
      const { type } = this.#resolve(raw)
      return typeof type === 'string' && type !== 'object' && type !== 'array'
    }
    return alternatives.find(isPlain) ?? alternatives.at(-1)
  }

  #resolve(raw: unknown): Schema {
    let schema = isSchema(raw) ? raw : {}
    for (let step = 0; step < maxDepth && typeof schema['$ref'] === 'string'; step += 1) {
      let target: unknown = this.#root
      for (const key of schema['$ref'].split('/').slice(1)) target = isSchema(target) ? target[key] : undefined
      schema = isSchema(target) ? target : {}
    }
    return schema
  }

  /** The first words of the question: as good a query, title or note as any. */
  #text(schema: Schema): string {
    const formatted = formattedText(schema['format'])
    if (formatted !== undefined) return formatted
    const words = this.#context.question.split(/\s+/, 6).join(' ').slice(0, 60)
    const { minLength, maxLength } = schema
    const longest = typeof maxLength === 'number' ? maxLength : Number.POSITIVE_INFINITY
    return (words === '' ? 'something' : words).padEnd(typeof minLength === 'number' ? minLength : 1).slice(0, longest)
  }

  #items(schema: Schema, path: string, depth: number): Json[] {
    const { minItems, maxItems: mostItems, items, prefixItems } = schema
    const fixed: readonly unknown[] = Array.isArray(prefixItems) ? prefixItems : []
    const usual = depth < maxDepth ? Math.max(this.#usualItems, fixed.length) : fixed.length
    const least = typeof minItems === 'number' ? Math.max(usual, minItems) : usual
    const count = Math.min(least, typeof mostItems === 'number' ? mostItems : maxItems, maxItems)
    return Array.from({ length: count }, (_, index) => this.value(fixed[index] ?? items, `${path}/${index}`, depth + 1))
  }

  #object(schema: Schema, path: string, depth: number): JsonObject {
    const { properties, required } = schema
    const object: Record<string, Json> = {}
    if (!isSchema(properties) || !isFilled(required)) return object
    for (const name of required) {
      if (typeof name === 'string') object[name] = this.value(properties[name], `${path}/${name}`, depth + 1)
    }
    return object
  }
}

function isSchema(value: unknown): value is Schema {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function isFilled(value: unknown): value is readonly unknown[] {
  return Array.isArray(value) && value.length > 0
}

/** One of the first few numbers from 1 upwards that the bounds allow; `luck` in [0, 1) says which. */
function boundedNumber(schema: Schema, luck: number): number {
  const step = typeof schema['multipleOf'] === 'number' && schema['multipleOf'] > 0 ? schema['multipleOf'] : 1
  const least = Math.ceil(lowest(schema, step) / step)
  const most = Math.floor(highest(schema, step) / step)
  // From 1 upwards if that is allowed: the bounds of "any integer" are no sensible values.
  const low = Math.max(least, Math.min(1, most))
  const high = Math.max(low, Math.min(most, low + 9))
  const number = (low + Math.floor(luck * (high - low + 1))) * step
  return fits(number, schema) ? number : between(schema)
}

function lowest({ minimum, exclusiveMinimum }: Schema, step: number): number {
  const least = typeof minimum === 'number' ? minimum : Number.NEGATIVE_INFINITY
  if (typeof exclusiveMinimum !== 'number') return least
  return Math.max(least, (Math.floor(exclusiveMinimum / step) + 1) * step)
}

function highest({ maximum, exclusiveMaximum }: Schema, step: number): number {
  const most = typeof maximum === 'number' ? maximum : Number.POSITIVE_INFINITY
  if (typeof exclusiveMaximum !== 'number') return most
  return Math.min(most, (Math.ceil(exclusiveMaximum / step) - 1) * step)
}

function fits(number: number, { minimum, maximum, exclusiveMinimum, exclusiveMaximum }: Schema): boolean {
  if (typeof minimum === 'number' && number < minimum) return false
  if (typeof maximum === 'number' && number > maximum) return false
  if (typeof exclusiveMinimum === 'number' && number <= exclusiveMinimum) return false
  return !(typeof exclusiveMaximum === 'number' && number >= exclusiveMaximum)
}

/** The middle of the bounds, for when no whole number lies between them. */
function between({ minimum, maximum, exclusiveMinimum, exclusiveMaximum }: Schema): number {
  const bounds = [minimum, exclusiveMinimum, maximum, exclusiveMaximum].filter((bound) => typeof bound === 'number')
  return bounds.reduce((sum, bound) => sum + bound, 0) / Math.max(1, bounds.length)
}

const formats: ReadonlyMap<unknown, string> = new Map([
  ['date-time', '2026-01-02T03:04:05Z'],
  ['date', '2026-01-02'],
  ['time', '03:04:05Z'],
  ['email', 'someone@example.org'],
  ['uri', 'https://example.org/'],
  ['uuid', '00000000-0000-4000-8000-000000000000'],
  ['ipv4', '192.0.2.1'],
])

function formattedText(format: unknown): string | undefined {
  return formats.get(format)
}
