import { z } from 'zod'
import type { Json, JsonObject } from './json.ts'

/** Any JSON. There is one schema for it, so that a description of an API has one name for it. */
export const jsonSchema: z.ZodType<Json, Json> = z.json()

export const jsonObjectSchema: z.ZodType<JsonObject, JsonObject> = z.record(z.string(), jsonSchema)
