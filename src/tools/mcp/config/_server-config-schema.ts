import { z } from 'zod'
import { maxTimerMs } from '../../../kit/index.ts'

const text = z.string().min(1)
const variables = z.record(z.string(), z.string())
const milliseconds = z.int().positive().max(maxTimerMs)
const names = z.array(text)
const knownTypes = 'expected "stdio" for a command, or "http", "streamable-http" or "sse" for a URL'

const reconnect = z.strictObject({ max: z.int().nonnegative(), windowMs: milliseconds })

const pool = z
  .strictObject({
    warm: z.int().nonnegative().exactOptional(),
    max: z.int().positive().exactOptional(),
    maxUses: z.int().positive().exactOptional(),
  })
  .refine(({ warm = 0, max }) => max === undefined || warm <= max, 'warm is more than max')

const choices = {
  sharing: ['shared', 'session', 'pooled'],
  retry: ['safe', 'always', 'never'],
  resume: ['rerun', 'reuse', 'restart'],
  onRestart: ['fail', 'tell'],
} as const

/** The fields of `ServerOptions`. */
const options = {
  disabled: z.boolean().exactOptional(),
  sharing: z.enum(choices.sharing).exactOptional(),
  required: z.boolean().exactOptional(),
  allow: names.exactOptional(),
  deny: names.exactOptional(),
  parallel: z.boolean().exactOptional(),
  prefix: text.exactOptional(),
  retry: z.enum(choices.retry).exactOptional(),
  resume: z.enum(choices.resume).exactOptional(),
  onRestart: z.enum(choices.onRestart).exactOptional(),
  startTimeoutMs: milliseconds.exactOptional(),
  callTimeoutMs: milliseconds.exactOptional(),
  idleMs: milliseconds.exactOptional(),
  maxLifetimeMs: milliseconds.exactOptional(),
  pool: pool.exactOptional(),
  reconnect: reconnect.exactOptional(),
  awayTimeoutMs: z.int().nonnegative().max(maxTimerMs).exactOptional(),
}

export const stdioServerSchema = z.strictObject({
  type: z.literal('stdio', { error: knownTypes }).exactOptional(),
  command: text,
  args: z.array(z.string()).exactOptional(),
  env: variables.exactOptional(),
  cwd: text.exactOptional(),
  ...options,
})

export const httpServerSchema = z.strictObject({
  type: z.enum(['http', 'streamable-http', 'sse'], { error: knownTypes }).exactOptional(),
  url: z
    .url({ protocol: /^https?$/, error: 'expected an http or https URL' })
    .refine(hasNoCredentials, 'a user name or password in a URL ends up in logs: send it in "headers"'),
  headers: variables.exactOptional(),
  caFile: text.exactOptional(),
  ...options,
})

function hasNoCredentials(url: string): boolean {
  const parsed = URL.parse(url)
  return !parsed?.username && !parsed?.password
}

/** The fields that are allowed at a place in a server's configuration, to suggest one for a misspelt name. */
export function knownFields(kind: 'stdio' | 'http', path: readonly PropertyKey[]): string[] {
  if (path[0] === 'pool') return Object.keys(pool.shape)
  if (path[0] === 'reconnect') return Object.keys(reconnect.shape)
  return Object.keys((kind === 'stdio' ? stdioServerSchema : httpServerSchema).shape)
}

/** The field that this name is a value of, as `shared` is of `sharing`. */
export function fieldOfChoice(name: string): string | undefined {
  return Object.entries(choices).find(([, values]) => values.some((value) => value === name))?.[0]
}
