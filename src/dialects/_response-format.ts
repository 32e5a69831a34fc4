import type { ResponseFormat } from '../inference/index.ts'
import type { Json, JsonObject } from '../schema/index.ts'
import { isAbsent } from './_json.ts'
import {
  optionalFlag,
  optionalObject,
  optionalText,
  requiredText,
  typedObject,
  type TypedObject,
} from './_request-fields.ts'
import type { Untranslatable } from './_untranslatable.ts'

/** The object that has the name and the schema of a format, and its place in the body. */
export interface SchemaPlace {
  readonly fields: JsonObject
  readonly at: string
}

/** Reads a format of OpenAI's APIs, which differ only in where they put its schema. */
export function openAiFormat(
  value: Json | undefined,
  at: string,
  untranslatable: Untranslatable,
  schemaOf: (format: TypedObject) => SchemaPlace,
): ResponseFormat | undefined {
  if (isAbsent(value)) return undefined
  const format = typedObject(value, at)
  if (format.type === 'text') return undefined
  if (format.type === 'json_object') return { kind: 'json_object' }
  if (format.type === 'json_schema') return readSchema(schemaOf(format))
  untranslatable.add(`${at}.type ${format.type}`)
  return undefined
}

/** Reads a format with a schema. If the schema is missing, any JSON will do. */
function readSchema({ fields, at }: SchemaPlace): ResponseFormat {
  const name = requiredText(fields, 'name', at)
  const description = optionalText(fields, 'description', at)
  const schema = optionalObject(fields, 'schema', at) ?? {}
  const strict = optionalFlag(fields, 'strict', at)
  return {
    kind: 'json_schema',
    name,
    ...(description !== undefined && { description }),
    schema,
    ...(strict !== undefined && { strict }),
  }
}
