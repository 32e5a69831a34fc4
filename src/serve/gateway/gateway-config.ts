import { z } from 'zod'
import { MillraceError } from '../../errors/index.ts'
import { refuseSharedKeys, refuseUnknownAliases } from '../../gateway/index.ts'
import { namedModelSchema, type NamedModelInput } from '../../inference/index.ts'
import { closedObject, describeIssues } from '../../schema/index.ts'
import { parseSimulatorOptions } from '../../simulator/index.ts'
import { checkedPublicUrl } from './public-url.ts'

const bound = z.int().min(1).exactOptional()

/** What a gateway serves and to whom: the content of its configuration file. Text may name variables as `${NAME}`. */
const schema = closedObject({
  /** Any but this machine's own needs a key. */
  host: z.string().exactOptional(),
  port: z.int().min(0).max(65_535).exactOptional(),
  /** Where clients reach it, if that is not what they send as `host`. */
  publicUrl: z.string().exactOptional(),
  /** The name of the run whose folder keeps the sessions. */
  run: z.string().exactOptional(),
  /** Whether backends that answer are asked for their lists while no request goes to them. Default: true. */
  pollBackends: z.boolean().exactOptional(),
  /** By the names that clients ask for. */
  models: z.record(z.string(), namedModelSchema).default({}),
  /** Other names for them; `*` for every name that is not known. */
  aliases: z.record(z.string(), z.string()).default({}),
  /** The admin keys, each of a tenant, who sees nothing of the others. */
  keys: z.array(closedObject({ tenant: z.string().min(1), key: z.string().min(1) })).default([]),
  /** What to do with tools that only the client's provider runs: `leave-out` (default) or `refuse`. */
  hostedTools: z.enum(['leave-out', 'refuse']).exactOptional(),
  bounds: closedObject({
    maxBodyBytes: bound,
    maxBodiesBytes: bound,
    maxHeaderBytes: bound,
    maxJsonDepth: bound,
    maxUploadMs: bound,
    maxExports: bound,
    maxStallMs: bound,
    maxWaitMs: bound,
    maxRateLimitWaitMs: bound,
  }).default({}),
})

export type GatewayConfigInput = z.input<typeof schema>

/** What was written, checked. Models are as they were: their defaults are filled in by whoever opens them. */
export type GatewayConfig = Omit<z.infer<typeof schema>, 'models'> & {
  readonly models: Readonly<Record<string, NamedModelInput>>
}

export interface GatewayConfigContext {
  /** Whether backends are named elsewhere: an alias may stand for a model that one of them lists. */
  readonly hasOtherBackends: boolean
}

/** Throws `config_invalid` with the path of each mistake. */
export function parseGatewayConfig(written: unknown, { hasOtherBackends }: GatewayConfigContext): GatewayConfig {
  const input = withNumbers(written, schema.safeParse(written).error?.issues ?? [])
  const checked = schema.safeParse(input)
  if (!checked.success) throw new MillraceError('config_invalid', describeIssues(checked.error.issues, input))
  const { models = {} } = input as GatewayConfigInput
  for (const [name, { simulator }] of Object.entries(models)) {
    if (simulator) parseSimulatorOptions(simulator, { place: `models.${name}.simulator` })
  }
  const { aliases, keys, publicUrl } = checked.data
  if (!hasOtherBackends && Object.keys(models).length > 0) refuseUnknownAliases(aliases, new Set(Object.keys(models)))
  refuseHiddenModels(aliases, models)
  refuseSharedKeys(keys)
  if (publicUrl !== undefined) checkedPublicUrl(publicUrl)
  return { ...checked.data, models }
}

/** An alias comes before a model of its name. Where both are in one file, no client could ask for that model. */
function refuseHiddenModels(aliases: GatewayConfig['aliases'], models: object): void {
  for (const [alias, name] of Object.entries(aliases)) {
    if (alias === name || !Object.hasOwn(models, alias)) continue
    const message = `aliases.${alias}: a model has that name, and no client could ask for it; rename one of them`
    throw new MillraceError('config_invalid', message)
  }
}

/** A variable is text: where a number is wanted, the text of one will do. */
function withNumbers(value: unknown, issues: readonly z.core.$ZodIssue[]): unknown {
  if (typeof value === 'string') {
    const isWanted = issues.some(({ code, path, ...issue }) => {
      return path.length === 0 && code === 'invalid_type' && 'expected' in issue && numeric.has(String(issue.expected))
    })
    return isWanted && numberText.test(value) ? Number(value) : value
  }
  if (value === null || typeof value !== 'object' || issues.length === 0) return value
  const below = (key: string | number): z.core.$ZodIssue[] =>
    issues.flatMap((issue) => (issue.path[0] === key ? [{ ...issue, path: issue.path.slice(1) }] : []))
  if (Array.isArray(value)) return value.map((item, index) => withNumbers(item, below(index)))
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, withNumbers(item, below(key))]))
}

const numeric: ReadonlySet<string> = new Set(['number', 'int'])
const numberText = /^-?\d+(\.\d+)?$/
