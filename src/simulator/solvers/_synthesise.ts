import type { Json, JsonObject, ToolDefinition } from '../../schema/index.ts'
import type { Scene } from './scene.ts'

/** Schemas may refer to themselves: below this depth only the shortest value is made. */
const maxDepth = 6

/** Arguments that satisfy the tool's JSON schema as far as its common keywords say; required fields only. */
export function synthesiseArguments(scene: Scene, tool: ToolDefinition): JsonObject {
  const value = new Synthesis(scene, tool.function.parameters).value(tool.function.parameters, '', 0)
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as JsonObject) : {}
}

type Schema = Readonly<Record<string, unknown>>

class Synthesis {
  readonly #scene: Scene
  readonly #root: Schema

  constructor(scene: Scene, root: Schema) {
    this.#scene = scene
    this.#root = root
  }

  value(raw: unknown, path: string, depth: number): Json {
    const schema = this.#resolve(raw)
    if ('const' in schema) return schema['const'] as Json
    if ('default' in schema) return schema['default'] as Json
    const { enum: choices, anyOf, oneOf, allOf } = schema
    if (isFilled(choices)) return this.#scene.pick(choices, `enum${path}`) as Json
    for (const alternatives of [anyOf, oneOf, allOf]) {
      if (isFilled(alternatives) && depth < maxDepth) return this.value(alternatives[0], path, depth + 1)
    }
    const { type } = schema
    switch (Array.isArray(type) ? type[0] : type) {
      case 'string':
        return this.#text(schema)
      case 'integer':
      case 'number':
        return this.#number(schema, path)
      case 'boolean':
        return this.#scene.draw(`boolean${path}`) < 0.5
      case 'array':
        return depth < maxDepth ? this.#items(schema, path, depth) : []
      case 'null':
        return null
      default:
        return depth < maxDepth ? this.#object(schema, path, depth) : {}
    }
  }

  /** Follows local references: `#/$defs/Name`. */
  #resolve(raw: unknown): Schema {
    let schema = isSchema(raw) ? raw : {}
    for (let step = 0; step < maxDepth && typeof schema['$ref'] === 'string'; step += 1) {
      let target: unknown = this.#root
      for (const key of schema['$ref'].split('/').slice(1)) target = isSchema(target) ? target[key] : undefined
      schema = isSchema(target) ? target : {}
    }
    return schema
  }

  /** The question's first words: as good a query, a title or a note as any. */
  #text(schema: Schema): string {
    const words = this.#scene.question.split(/\s+/, 6).join(' ').slice(0, 60)
    const { minLength, maxLength } = schema
    const longest = typeof maxLength === 'number' ? maxLength : words.length
    return (words === '' ? 'something' : words).padEnd(typeof minLength === 'number' ? minLength : 1).slice(0, longest)
  }

  #number(schema: Schema, path: string): number {
    const { minimum, maximum } = schema
    const most = typeof maximum === 'number' ? Math.floor(maximum) : Number.POSITIVE_INFINITY
    const least = typeof minimum === 'number' ? Math.ceil(minimum) : Number.NEGATIVE_INFINITY
    // From 1 upwards if that is allowed: the bounds of "any integer" are no sensible arguments.
    const low = Math.max(least, Math.min(1, most))
    const high = Math.max(low, Math.min(most, low + 9))
    return low + Math.floor(this.#scene.draw(`number${path}`) * (high - low + 1))
  }

  #items(schema: Schema, path: string, depth: number): Json[] {
    const { minItems, items } = schema
    const count = Math.min(typeof minItems === 'number' ? Math.max(1, minItems) : 1, 16)
    return Array.from({ length: count }, (_, index) => this.value(items, `${path}/${index}`, depth + 1))
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
