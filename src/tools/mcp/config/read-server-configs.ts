import { readFile } from 'node:fs/promises'
import { z } from 'zod'
import { MillraceError } from '../../../errors/index.ts'
import { interpolate, maxTimerMs, nearestName, type Variables } from '../../../kit/index.ts'
import { readAuthority } from '../../../http/index.ts'
import { describeIssue, isJsonObject, safeParse } from '../../../schema/index.ts'
import { isToolName } from '../../tool.ts'
import { enabledServers, rememberSecrets, secretsOf, type ServerConfig, sharingOf } from './server-config.ts'

const maxProblems = 5

/** Reads a file with `mcpServers` in it, as every MCP client has one. */
export async function loadServerConfigs(
  path: string,
  env: Variables = process.env,
): Promise<Record<string, ServerConfig>> {
  let text: string
  try {
    text = await readFile(path, 'utf8')
  } catch (cause) {
    throw new MillraceError('file_not_found', `cannot read the tool servers in ${path}; check the path`, { cause })
  }
  return readServerConfigs(text, path, env)
}

/**
 * Reads `{ "mcpServers": { name: {…} } }`, or the inner object alone, as JSON text or parsed. `${NAME}` and `${NAME:-default}`
 * are filled in from `env`. Fields beside `mcpServers` belong to other programs and are ignored. `where` is the name of the
 * source in messages.
 */
export function readServerConfigs(input: unknown, where: string, env: Variables): Record<string, ServerConfig> {
  const content = typeof input === 'string' ? parseJson(input, where) : input
  if (!isJsonObject(content)) throw invalid(where, 'expected an object: { "mcpServers": { "name": { "command": … } } }')
  const isWrapped = 'mcpServers' in content
  const path = isWrapped ? 'mcpServers' : ''
  const servers = isWrapped ? content['mcpServers'] : content
  if (!isJsonObject(servers)) throw invalid(where, 'mcpServers: expected an object with a server under each name')
  if (!isWrapped) checkForMisspeltWrapper(servers, where)
  return Object.fromEntries(
    Object.entries(enabledServers(servers)).map(([name, given]) => {
      const at = path === '' ? name : `${path}.${name}`
      const { value, filledIn } = interpolate({ [at]: given }, env, where)
      const filled = isJsonObject(value) ? value[at] : undefined
      // An entry that was read before keeps the secrets that were filled in then.
      const secrets = [...filledIn, ...(isJsonObject(given) ? secretsOf(given) : [])]
      return [name, rememberSecrets(readServer(name, filled, at, where), secrets)]
    }),
  )
}

/** The fields that say how a server is reached: it has one of them. */
const kinds = ['command', 'url']

function readServer(name: string, given: unknown, at: string, where: string): ServerConfig {
  // It is part of tool names.
  if (!isToolName(name)) {
    throw invalid(where, `${at}: a server's name has up to 64 letters, digits, "_" and "-"`)
  }
  if (!isJsonObject(given)) throw invalid(where, `${at}: expected an object with a "command" or a "url"`)
  // In TypeScript a field may be present with the value undefined.
  const entry = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined))
  if ('command' in entry === 'url' in entry) {
    const misspelt = Object.keys(entry).find((key) => !kinds.includes(key) && nearestName(key, kinds) !== undefined)
    if (misspelt !== undefined) {
      throw invalid(where, `${at}.${misspelt}: unknown field; ${suggestion(misspelt, kinds)}`)
    }
    const has = 'command' in entry ? 'has both a "command" and a "url"' : 'has neither a "command" nor a "url"'
    throw invalid(where, `${at}: ${has}: a server is either started with a command or reached at a URL`)
  }
  const kind = 'command' in entry ? 'stdio' : 'http'
  const parsed = kind === 'stdio' ? safeParse(stdioServerSchema, entry) : safeParse(httpServerSchema, entry)
  if (!parsed.success) throw invalid(where, describe(parsed.error.issues, entry, at, kind))
  const config: ServerConfig = parsed.data
  // The file is read again where it is used; reading it here finds a wrong one before anything starts.
  const caFile = 'url' in config ? config.caFile : undefined
  if (caFile !== undefined) checked(`${where}: ${at}.caFile`, () => readAuthority(caFile))
  const sharing = checked(`${where}: ${at}.sharing`, () => sharingOf(name, config))
  if (config.pool && sharing !== 'pooled') {
    throw invalid(where, `${at}.pool: there is no pool with "sharing": "${sharing}"; leave it out`)
  }
  return config
}

/** Finds a misspelt `mcpServers`: read as the name of a server, it would make for a puzzling message. */
function checkForMisspeltWrapper(servers: Readonly<Record<string, unknown>>, where: string): void {
  for (const [name, entry] of Object.entries(servers)) {
    const isServer = !isJsonObject(entry) || 'command' in entry || 'url' in entry
    if (!isServer && nearestName(name, ['mcpServers']) !== undefined) {
      throw invalid(where, `${name}: unknown field; did you mean "mcpServers"?`)
    }
  }
}

function describe(issues: readonly z.core.$ZodIssue[], given: unknown, at: string, kind: 'stdio' | 'http'): string {
  const problems = issues.flatMap((issue) => {
    const place = at + issue.path.map((step) => (typeof step === 'number' ? `[${step}]` : `.${String(step)}`)).join('')
    if (issue.code !== 'unrecognized_keys') return [`${place}: ${describeIssue(issue, given)}`]
    const known = knownFields(kind, issue.path)
    return issue.keys.map((key) => `${place}.${key}: unknown field; ${suggestion(key, known)}`)
  })
  const more = problems.length > maxProblems ? `; and ${problems.length - maxProblems} more` : ''
  return `${problems.slice(0, maxProblems).join('; ')}${more}`
}

function suggestion(key: string, known: readonly string[]): string {
  const near = nearestName(key, known)
  return near === undefined ? `known are ${known.join(', ')}` : `did you mean "${near}"?`
}

/** Runs `check`; its errors are thrown again with this place. */
function checked<T>(place: string, check: () => T): T {
  try {
    return check()
  } catch (error) {
    const { rawMessage } = MillraceError.from(error, 'config_invalid')
    throw new MillraceError('config_invalid', `${place}: ${rawMessage}`, { cause: error })
  }
}

function parseJson(text: string, where: string): unknown {
  try {
    return JSON.parse(text)
  } catch (cause) {
    const { rawMessage } = MillraceError.from(cause, 'config_invalid')
    throw new MillraceError('config_invalid', `${where}: it is not JSON: ${rawMessage}`, { cause })
  }
}

function invalid(where: string, problem: string): MillraceError {
  return new MillraceError('config_invalid', `${where}: ${problem}`)
}

type Servers = Readonly<Record<string, ServerConfig>>

interface ServersDeclared<Options> {
  readonly name: string
  readonly mcpServers?: Servers | ((options: Options) => Servers)
}

/** The tool servers of an environment, checked and with their variables filled in from `env`; none if it declares none. */
export function serverConfigsOf<Options>(
  environment: ServersDeclared<Options>,
  options: Options,
  env: Variables,
): Record<string, ServerConfig> {
  const { servers, where } = declaredServers(environment, options)
  return readServerConfigs(servers, where, env)
}

/** The servers as the environment declares them: not checked, nothing filled in. `where` names the place in messages. */
export function declaredServers<Options>(
  { name, mcpServers = {} }: ServersDeclared<Options>,
  options: Options,
): { readonly servers: Servers; readonly where: string } {
  const servers = typeof mcpServers === 'function' ? mcpServers(options) : mcpServers
  return { servers, where: `mcpServers of ${name}` }
}

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

const options = {
  disabled: z.boolean().exactOptional(),
  sharing: z.enum(['shared', 'session', 'pooled']).exactOptional(),
  required: z.boolean().exactOptional(),
  allow: names.exactOptional(),
  deny: names.exactOptional(),
  parallel: z.boolean().exactOptional(),
  prefix: text.exactOptional(),
  retry: z.enum(['safe', 'always', 'never']).exactOptional(),
  resume: z.enum(['rerun', 'reuse', 'restart']).exactOptional(),
  onRestart: z.enum(['fail', 'tell']).exactOptional(),
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
function knownFields(kind: 'stdio' | 'http', path: readonly PropertyKey[]): string[] {
  if (path[0] === 'pool') return Object.keys(pool.shape)
  if (path[0] === 'reconnect') return Object.keys(reconnect.shape)
  return Object.keys((kind === 'stdio' ? stdioServerSchema : httpServerSchema).shape)
}
