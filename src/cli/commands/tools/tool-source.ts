import { availableParallelism } from 'node:os'
import { type LoadedEnvironment, loadEnvironment, type RawOptions } from '../../../env/index.ts'
import { MillraceError } from '../../../errors/index.ts'
import { nearestName, Semaphore, type Variables } from '../../../kit/index.ts'
import { isJsonObject } from '../../../schema/index.ts'
import {
  declaredServers,
  enabledServers,
  McpSession,
  readServerConfigs,
  refuseUnlisted,
  type ServerConfig,
  type ToolCatalogue,
} from '../../../tools/index.ts'
import { usageError } from '../../command-line/flag-value.ts'
import { readJsonFile } from '../../command-line/input-file.ts'
import type { CommandIo } from '../../terminal/io.ts'

/** What every action on tools needs. */
export interface ToolCommandContext {
  readonly io: CommandIo
  readonly signal: AbortSignal
}

export type Transport = 'stdio' | 'http' | 'sse'

export interface ToolSource {
  readonly given: string
  readonly label: string
  /** The entries as they were written, neither filled in nor checked: a wrong one must not affect others. */
  readonly servers: Readonly<Record<string, unknown>>
  readonly environment?: LoadedEnvironment
}

const environmentScheme = 'environment:'

/** Reads a source: a `.json` file is a configuration; anything else, and a name with `environment:`, is an environment. */
export async function readToolSource(
  given: string,
  options: RawOptions,
  io: Pick<CommandIo, 'cwd'>,
): Promise<ToolSource> {
  if (isServerFile(given)) return readConfiguration(given, options, io)
  const environment = await loadEnvironment(environmentName(given), options, { cwd: io.cwd })
  const { servers, where } = declaredServers(environment.environment, environment.options)
  return { given, label: where, servers: enabledServers(servers), environment }
}

export function isServerFile(given: string): boolean {
  return !given.startsWith(environmentScheme) && given.endsWith('.json')
}

export function environmentName(given: string): string {
  return given.startsWith(environmentScheme) ? given.slice(environmentScheme.length) : given
}

/** The source with only the named server; with all of them if there is no name. */
export function onlyServer(source: ToolSource, name: string | undefined): ToolSource {
  if (name === undefined) return source
  if (Object.hasOwn(source.servers, name)) return { ...source, servers: { [name]: source.servers[name] } }
  const known = Object.keys(source.servers)
  const near = nearestName(name, known)
  const hint = near ? `did you mean ${near}?` : `its servers: ${known.join(', ') || 'none'}`
  throw usageError(`${source.label} has no server "${name}"; ${hint}`)
}

export function serverConfig({ servers, label }: ToolSource, name: string, env: Variables): ServerConfig {
  const config = readServerConfigs({ mcpServers: { [name]: servers[name] } }, label, env)[name]
  if (!config) throw new MillraceError('internal', `server ${name} was read but has no config`)
  return config
}

/** How a server is reached, even if the rest of its entry is wrong. */
export function transportOf(entry: unknown): Transport {
  if (!isJsonObject(entry) || !('url' in entry)) return 'stdio'
  return entry['type'] === 'sse' ? 'sse' : 'http'
}

/** Whether rollouts need the server, even if the rest of its entry is wrong. */
export function isRequired(entry: unknown): boolean {
  return !isJsonObject(entry) || entry['required'] !== false
}

async function readConfiguration(
  path: string,
  options: RawOptions,
  { cwd }: Pick<CommandIo, 'cwd'>,
): Promise<ToolSource> {
  const [option] = Object.keys(options)
  if (option !== undefined) {
    throw usageError(`--env.${option} applies to an environment, but ${path} is a file of servers`)
  }
  const content = await readJsonFile(path, cwd)
  // As for every MCP client, fields beside `mcpServers` belong to other programs.
  const servers = isJsonObject(content) && 'mcpServers' in content ? content['mcpServers'] : content
  if (!isJsonObject(servers)) throw new MillraceError('config_invalid', `${path}: ${expectedShape}`)
  if (servers === content) {
    refuseOtherName(servers, path)
    // Most JSON files are no configuration of servers.
    if (!Object.values(servers).some(looksLikeServer)) {
      throw new MillraceError('config_invalid', `${path} has no "mcpServers": ${expectedShape}`)
    }
  }
  return { given: path, label: path, servers: enabledServers(servers) }
}

const expectedShape = 'expected { "mcpServers": { "<name>": { "command": … } or { "url": … } } }'

function looksLikeServer(entry: unknown): boolean {
  return isJsonObject(entry) && ('command' in entry || 'url' in entry)
}

/** Refuses a file whose servers are under another name, or under a misspelt one: that name would be taken for a server. */
function refuseOtherName(content: Readonly<Record<string, unknown>>, path: string): void {
  const name = Object.keys(content).find((key) => key === 'servers' || nearestName(key, ['mcpServers']) !== undefined)
  const entry = name === undefined ? undefined : content[name]
  if (!isJsonObject(entry) || looksLikeServer(entry)) return
  const whose = name === 'servers' ? ', as VS Code has them' : ''
  throw new MillraceError(
    'config_invalid',
    `${path} has its servers under "${name}"${whose}: rename it to "mcpServers"`,
  )
}

export type OpenedServer = {
  readonly server: string
  readonly transport: Transport
  readonly isRequired: boolean
  readonly ms: number
} & (
  | { readonly session: McpSession; readonly catalogue: ToolCatalogue; readonly error?: undefined }
  | { readonly error: MillraceError; readonly session?: undefined; readonly catalogue?: undefined }
)

/** Opens all servers at once. A server that fails, or whose entry is wrong, is included with its error. */
export async function openServers(
  source: ToolSource,
  { io: { env }, signal }: ToolCommandContext,
): Promise<AsyncDisposable & { readonly all: readonly OpenedServer[] }> {
  const starts = new Semaphore(Math.max(8, availableParallelism() * 4))
  await using sessions = new AsyncDisposableStack()
  const open = async (name: string): Promise<OpenedServer> => {
    const startedAt = performance.now()
    const entry = source.servers[name]
    const facts = { server: name, transport: transportOf(entry), isRequired: isRequired(entry) }
    try {
      const config = serverConfig(source, name, env)
      const session = sessions.use(new McpSession({ name, config, starts, onEvent: () => {} }))
      const catalogue = await session.open(signal)
      refuseUnlisted(catalogue)
      return { ...facts, session, catalogue, ms: performance.now() - startedAt }
    } catch (error) {
      return { ...facts, error: MillraceError.from(error, 'tool_infra'), ms: performance.now() - startedAt }
    }
  }
  const all = await Promise.all(Object.keys(source.servers).map(open))
  signal.throwIfAborted()
  const kept = sessions.move()
  return { all, [Symbol.asyncDispose]: () => kept.disposeAsync() }
}
