import { z } from 'zod'
import { MillraceError } from '../../errors/index.ts'
import { refuseSharedKeys, refuseUnknownAliases } from '../../gateway/index.ts'
import { type NamedModelInput, namedModelSchema } from '../../inference/index.ts'
import { heapShare } from '../../kit/index.ts'
import { closedObject, describeIssues, safeParse } from '../../schema/index.ts'
import { parseSimulatorOptions } from '../../simulator/index.ts'

const bound = z.int().min(1).exactOptional()

/** What a gateway serves and to whom: the content of its configuration file. Text may name variables as `${NAME}`. */
const schema = closedObject({
  host: z.string().exactOptional(),
  port: z.int().min(0).max(65_535).exactOptional(),
  /** Where clients reach it, if that is not what they send as `host`. */
  publicUrl: z.string().exactOptional(),
  run: z.string().exactOptional(),
  /** Whether backends that answer are asked for their lists while no request goes to them. Default: true. */
  pollBackends: z.boolean().exactOptional(),
  models: z.record(z.string(), namedModelSchema).default({}),
  /** Other names for them; `*` for every name that is not known. */
  aliases: z.record(z.string(), z.string()).default({}),
  /** The admin keys, each of a tenant, who sees nothing of the others. */
  keys: z.array(closedObject({ tenant: z.string().min(1), key: z.string().min(1) })).default([]),
  /** What to do with tools that only the client's provider runs: `leave-out` (default) or `refuse`. */
  hostedTools: z.enum(['leave-out', 'refuse']).exactOptional(),
  /** What requests do while all backends of their model are paused: `wait` (default) or `refuse`. */
  whenPaused: z.enum(['wait', 'refuse']).exactOptional(),
  /** The hosts, addresses and networks of backends that may be registered over HTTP. Default: all but link-local ones. */
  allowBackends: z.array(z.string().min(1)).exactOptional(),
  /** Whether it is a model server of NeMo Gym, too. */
  nemoGym: z.boolean().exactOptional(),
  /** Whether AReaL's clients may use it: `true`, or an object with what differs from the defaults. */
  areal: z
    .union([
      z.boolean(),
      closedObject({ strict: z.boolean().exactOptional(), tensors: z.enum(['inline', 'reference']).exactOptional() }),
    ])
    .exactOptional(),
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
    maxPauseWaitMs: bound,
    maxCookieSessions: bound,
    cookieSessionIdleMs: bound,
    maxTensorBytes: bound,
    maxShardBytes: bound,
    shardMs: bound,
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
  const input = withNumbers(written, safeParse(schema, written).error?.issues ?? [])
  const checked = safeParse(schema, input)
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
    const message = `aliases.${alias}: a model has the same name, so clients could not request that model; rename one of them`
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

/** What a gateway's HTTP server takes in at most. Beyond a bound a request is refused, in the words of its API. */
export interface GatewayBounds {
  readonly maxBodyBytes: number
  /** Of all requests that are being read or answered: a body is held until its reply has ended. */
  readonly maxBodiesBytes: number
  readonly maxHeaderBytes: number
  readonly maxJsonDepth: number
  readonly maxUploadMs: number
  /** At once; others wait for half of `maxStallMs` at most. */
  readonly maxExports: number
  /** A client that takes nothing of what is written for it for so long is abandoned. */
  readonly maxStallMs: number
  /** Of NeMo Gym's clients. Beyond it, those that were not used for longest are ended. */
  readonly maxCookieSessions: number
  /** Such a session ends after this time without a request. */
  readonly cookieSessionIdleMs: number
  /** Of one export of AReaL's clients, padding included. */
  readonly maxTensorBytes: number
  /** Of all exported tensors that AReaL's clients have yet to fetch. What finds no room is sent in its export. */
  readonly maxShardBytes: number
  /** How long such a tensor is kept. */
  readonly shardMs: number
}

const kibibyte = 1024
const mebibyte = 1024 * kibibyte

export const defaultGatewayBounds: GatewayBounds = {
  maxBodyBytes: 32 * mebibyte,
  maxBodiesBytes: heapShare(512 * mebibyte),
  maxHeaderBytes: 16 * kibibyte,
  maxJsonDepth: 64,
  maxUploadMs: 2 * 60_000,
  maxExports: 8,
  maxStallMs: 60_000,
  maxCookieSessions: 50_000,
  cookieSessionIdleMs: 60 * 60_000,
  maxTensorBytes: 512 * mebibyte,
  maxShardBytes: 1024 * mebibyte,
  shardMs: 60 * 60_000,
}

/** Where clients reach a gateway, without a slash at its end. A path is that of a proxy, who takes it off again. */
export function checkedPublicUrl(text: string): string {
  const url = URL.parse(text)
  const isPlain = url !== null && !url.username && !url.password && !/[?#]/.test(text)
  if (isPlain && (url.protocol === 'http:' || url.protocol === 'https:')) return url.href.replace(/\/+$/, '')
  // It may be a password that is wrong with it.
  const shown = text.includes('@') ? 'the given value' : `"${text}"`
  throw new MillraceError(
    'config_invalid',
    `${shown} is not a valid public URL: write it like https://gateway.example.com, without a query, a fragment or a password`,
  )
}
