import type { ResponseFormat } from '../inference/index.ts'
import type { JsonObject } from '../schema/index.ts'

/** What each API says of a schema for a reply. One without a schema takes any JSON. */
export interface SchemaFacts {
  readonly name: string
  readonly description: string | undefined
  readonly schema: JsonObject | undefined
  readonly strict: boolean | undefined
}

export function jsonSchemaFormat({ name, description, schema = {}, strict }: SchemaFacts): ResponseFormat {
  return {
    kind: 'json_schema',
    name,
    ...(description !== undefined && { description }),
    schema,
    ...(strict !== undefined && { strict }),
  }
}
