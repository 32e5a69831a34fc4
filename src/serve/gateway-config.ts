import { z } from 'zod'
import { MillraceError } from '../errors/index.ts'
import { modelConfigSchema } from '../inference/index.ts'
import { describeIssues } from '../schema/index.ts'

const bound = z.int().min(1).exactOptional()
const modelSchema = modelConfigSchema.partial({ name: true }).strict()

/** What a gateway serves and to whom: the content of its configuration file. Text may name variables as `${NAME}`. */
const schema = z.strictObject({
  /** Any but this machine's own needs a key. */
  host: z.string().exactOptional(),
  /** Text too, because that is what a variable is. */
  port: z.coerce.number().int().min(0).max(65_535).exactOptional(),
  /** The name of the run whose folder keeps the sessions. */
  run: z.string().exactOptional(),
  /** By the names that clients ask for. */
  models: z.record(z.string(), modelSchema).default({}),
  /** Other names for them; `*` for every name that is not known. */
  aliases: z.record(z.string(), z.string()).default({}),
  /** The admin keys, each of a tenant, who sees nothing of the others. */
  keys: z.array(z.strictObject({ tenant: z.string().min(1), key: z.string().min(1) })).default([]),
  bounds: z
    .strictObject({
      maxBodyBytes: bound,
      maxBodiesBytes: bound,
      maxHeaderBytes: bound,
      maxJsonDepth: bound,
      maxUploadMs: bound,
      maxStallMs: bound,
    })
    .default({}),
})

export type GatewayConfigInput = z.input<typeof schema>

/** A model as it was written; its name is that under which it stands. */
export type NamedModelInput = z.input<typeof modelSchema>

/** What was written, checked. Models are as they were: their defaults are filled in by whoever opens them. */
export type GatewayConfig = Omit<z.infer<typeof schema>, 'models'> & {
  readonly models: Readonly<Record<string, NamedModelInput>>
}

/** Throws `config_invalid` with the path of each mistake. */
export function parseGatewayConfig(input: unknown): GatewayConfig {
  const checked = schema.safeParse(input)
  if (!checked.success) throw new MillraceError('config_invalid', describeIssues(checked.error.issues))
  const { models = {} } = input as GatewayConfigInput
  return { ...checked.data, models }
}
