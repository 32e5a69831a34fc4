import { isJsonObject } from '../schema/index.ts'
import type { JsonSchema } from './json-schema.ts'

/** A signature only reminds the model, which was given the schema itself already. */
const maxSignatureChars = 1_000
const maxDepth = 3
const maxChoices = 12

/** What a tool expects, short enough for an error message: `{"city": string, "unit"?: "celsius" | "kelvin"}`. */
export function describeParameters(schema: JsonSchema): string {
  const text = describe(schema, 0)
  return text.length > maxSignatureChars ? `${text.slice(0, maxSignatureChars)}…` : text
}

function describe(schema: unknown, depth: number): string {
  if (!isJsonObject(schema) || depth > maxDepth) return 'value'
  if ('const' in schema) return JSON.stringify(schema['const'])
  const choices = schema['enum']
  if (Array.isArray(choices)) return alternatives(choices, (choice) => JSON.stringify(choice))
  const options = schema['anyOf'] ?? schema['oneOf']
  if (Array.isArray(options)) return alternatives(options, (option) => describe(option, depth + 1))
  const { type } = schema
  if (Array.isArray(type)) return alternatives(type, String)
  if (type === 'array') return `[${describe(schema['items'], depth + 1)}, …]`
  if (type === 'object' && isJsonObject(schema['properties']))
    return describeObject(schema, schema['properties'], depth)
  return typeof type === 'string' ? type : 'value'
}

function describeObject(schema: JsonSchema, properties: JsonSchema, depth: number): string {
  const required = new Set(Array.isArray(schema['required']) ? schema['required'] : [])
  const fields = Object.entries(properties).map(
    ([name, field]) => `${JSON.stringify(name)}${required.has(name) ? '' : '?'}: ${describe(field, depth + 1)}`,
  )
  return `{${fields.join(', ')}}`
}

function alternatives(options: readonly unknown[], text: (option: unknown) => string): string {
  const shown = options.slice(0, maxChoices).map(text)
  if (options.length > maxChoices) shown.push('…')
  return shown.join(' | ')
}
