import { z } from 'zod'
import { safeParse } from '../../../schema/index.ts'
import { plainBody, refusalOf } from '../fastapi/wire-errors.ts'

/** The bodies of AReaL's routes, with the conversions that pydantic makes. Fields that are not known are ignored. */

const maxGroupSize = 1024
const maxTaskChars = 256
const maxReward = 1e30

const intText = /^\s*[+-]?\d+\s*$/
const toNumber = (value: number | string | boolean): number => Number(value)

const looseInt = z.union([z.int(), z.string().regex(intText), z.boolean()]).transform(toNumber)
const looseNumber = z.union([z.number(), z.string(), z.boolean()]).transform(toNumber).pipe(z.number())

export const startSessionSchema = z.object({
  task_id: z.string().max(maxTaskChars),
  /** What a header can carry. An empty one is none. */
  api_key: z
    .string()
    .regex(/^[!-~]*$/)
    .max(maxTaskChars)
    .nullish(),
  group_size: looseInt
    .pipe(z.int().max(maxGroupSize))
    .transform((size) => Math.max(size, 1))
    .default(1),
})

export const setRewardSchema = z.object({
  interaction_id: z.string().nullish(),
  reward: looseNumber.pipe(z.number().min(-maxReward).max(maxReward)),
})

export const exportSchema = z.object({
  session_ids: z.array(z.string()),
  trajectory_id: looseInt.nullish(),
  discount: looseNumber.default(1),
  style: z.string().default('individual'),
  remove_session: z.boolean().default(true),
})

export type ExportRequest = z.infer<typeof exportSchema>

export const registerModelSchema = z.object({
  model: z.string().nullish(),
  url: z.string().nullish(),
  data_proxy_addrs: z.array(z.string()).nullish(),
})

export const shardIdsSchema = z.object({ shard_ids: z.array(z.string()) })

/** The body as the schema has it. Throws the 422 of FastAPI. */
export function parsedBody<Schema extends z.ZodType>(bytes: Uint8Array, schema: Schema): z.output<Schema> {
  const body = plainBody(bytes)
  const checked = safeParse(schema, body)
  if (checked.success) return checked.data
  throw refusalOf(checked.error.issues, body)
}
