import { readFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { loadEnvironment, type LoadedEnvironment, type RawOptions } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { nearestName, type Variables } from '../../kit/index.ts'
import { isJsonObject } from '../../schema/index.ts'
import { declaredServers, enabledServers, readServerConfigs, type ServerConfig } from '../../tools/index.ts'
import type { CommandIo } from '../process/io.ts'

export type Transport = 'stdio' | 'http' | 'sse'

/** A source of tools: a file with `mcpServers`, or an environment with servers and tools of its own. */
export interface ToolSource {
  /** The source as it was given on the command line. */
  readonly given: string
  /** The source's name in messages. */
  readonly label: string
  /**
   * The servers' entries by name, as they were written. They are neither filled in nor checked, so that a wrong one does not
   * affect others.
   */
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

/** The name or path of an environment, without the prefix `environment:`. */
export function environmentName(given: string): string {
  return given.startsWith(environmentScheme) ? given.slice(environmentScheme.length) : given
}

/** The source with only the named server; with all of them if there is no name. */
export function onlyServer(source: ToolSource, name: string | undefined): ToolSource {
  if (name === undefined) return source
  if (Object.hasOwn(source.servers, name)) return { ...source, servers: { [name]: source.servers[name] } }
  const known = Object.keys(source.servers)
  const near = nearestName(name, known)
  const hint = near ? `did you mean ${near}?` : `there is ${known.join(', ') || 'none'}`
  throw new MillraceError('usage', `${source.label} has no server "${name}"; ${hint}`)
}

/** One server's entry, checked and with its variables filled in. */
export function serverConfig({ servers, label }: ToolSource, name: string, env: Variables): ServerConfig {
  const config = readServerConfigs({ mcpServers: { [name]: servers[name] } }, label, env)[name]
  if (!config) throw new MillraceError('internal', `${name} was read and is not there`)
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
    throw new MillraceError('usage', `--env.${option} is for an environment, and ${path} is a file of servers`)
  }
  const content = parse(await readText(resolve(cwd, path), path), path)
  // As for every MCP client, fields beside `mcpServers` belong to other programs.
  const servers = isJsonObject(content) && 'mcpServers' in content ? content['mcpServers'] : content
  if (!isJsonObject(servers)) {
    throw new MillraceError('config_invalid', `${path}: ${expectedShape}`)
  }
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

async function readText(file: string, shown: string): Promise<string> {
  try {
    return await readFile(file, 'utf8')
  } catch (cause) {
    throw new MillraceError('file_not_found', `cannot read ${shown}; check the path`, { cause })
  }
}

function parse(text: string, shown: string): unknown {
  try {
    return JSON.parse(text)
  } catch (cause) {
    throw new MillraceError(
      'config_invalid',
      `${shown} is not JSON: ${MillraceError.from(cause, 'internal').rawMessage}`,
      {
        cause,
      },
    )
  }
}
