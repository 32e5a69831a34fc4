import { readFile } from 'node:fs/promises'
import { dirname, isAbsolute, resolve } from 'node:path'
import { MillraceError } from '../errors/index.ts'
import { nearestName, parseYaml, type Variables } from '../kit/index.ts'
import { isJsonList, isJsonObject, type Json, type JsonObject } from '../schema/index.ts'
import { ConfigTree, merged } from './config-tree.ts'
import { fetchText } from './resources-server.ts'

export interface ConfigSources {
  /** Files, later ones over earlier ones, or the address of a head server, which has the whole configuration. */
  readonly configs: readonly string[]
  /** Put over the files. */
  readonly overrides?: JsonObject | undefined
  readonly cwd: string
  readonly env: Variables
}

/** An agent of a configuration: who runs its episodes, and the resources server that they use. */
export interface ConfiguredAgent {
  readonly kind: string
  /** The path of its block. */
  readonly at: string
  /** The fields of its block. */
  readonly field: (name: string) => Json | undefined
  readonly server: string
  /** Undefined if the configuration has no port for it. */
  readonly url: string | undefined
}

/** The agents of a configuration by name. Where there are none, each resources server has one of its own name: the simple agent. */
export async function readAgents(sources: ConfigSources): Promise<Map<string, ConfiguredAgent>> {
  const tree = await readTree(sources)
  const agents = new Map<string, ConfiguredAgent>()
  for (const [name, entry] of Object.entries(tree.root)) {
    const kinds = isJsonObject(entry) ? entry['responses_api_agents'] : undefined
    const [kind] = isJsonObject(kinds) ? Object.keys(kinds) : []
    if (kind === undefined) continue
    const at = [name, 'responses_api_agents', kind]
    const server = tree.value([...at, 'resources_server', 'name'])
    if (typeof server !== 'string') continue
    const field: ConfiguredAgent['field'] = (each) => tree.value([...at, each])
    agents.set(name, { kind, at: at.join('.'), server, url: urlOf(tree, server), field })
  }
  if (agents.size > 0) return agents
  for (const [name, entry] of Object.entries(tree.root)) {
    if (!isJsonObject(entry) || !isJsonObject(entry['resources_servers'])) continue
    agents.set(name, { kind: 'simple_agent', at: name, server: name, url: urlOf(tree, name), field: () => undefined })
  }
  if (agents.size > 0) return agents
  throw new MillraceError(
    'config_invalid',
    `${sources.configs.join(', ')} has no resources server: name a configuration with \`resources_servers\``,
  )
}

function urlOf(tree: ConfigTree, server: string): string | undefined {
  const entry = tree.root[server]
  const kinds = isJsonObject(entry) ? entry['resources_servers'] : undefined
  const [kind] = isJsonObject(kinds) ? Object.keys(kinds) : []
  if (kind === undefined) {
    const near = nearestName(server, Object.keys(tree.root))
    throw new MillraceError(
      'config_invalid',
      `an agent uses the resources server ${server}, which the configuration does not have${near ? `; did you mean ${near}?` : ': add its file'}`,
    )
  }
  const at = [server, 'resources_servers', kind]
  const port = tree.value([...at, 'port'])
  if (typeof port !== 'number' && typeof port !== 'string') return undefined
  const host = tree.value([...at, 'host']) ?? tree.value(['default_host']) ?? '127.0.0.1'
  return `http://${typeof host === 'string' ? host : JSON.stringify(host)}:${port}`
}

/** As NeMo Gym merges: files in their order, those that they name after them, `env.yaml`, and what was given by hand. */
async function readTree({ configs, overrides, cwd, env }: ConfigSources): Promise<ConfigTree> {
  const waiting = configs.map((path) => ({ path, folder: cwd }))
  const known = new Set(configs)
  let root: Json | undefined = {}
  for (const { path, folder } of waiting) {
    const { content, folder: beside } = await readConfig(path, [cwd, ...foldersFrom(folder)])
    root = merged(root, content)
    const { config_paths: more } = content
    for (const each of isJsonList(more) ? more : []) {
      if (typeof each !== 'string' || known.has(each)) continue
      known.add(each)
      waiting.push({ path: each, folder: beside })
    }
  }
  root = merged(root, await readFile(resolve(cwd, 'env.yaml'), 'utf8').then(parsedAs('env.yaml'), () => undefined))
  const whole = merged(root, overrides)
  return new ConfigTree(isJsonObject(whole) ? whole : {}, env)
}

/** `config_paths` start from where NeMo Gym is installed: a folder around the file that names them. */
function foldersFrom(folder: string): string[] {
  const above = dirname(folder)
  return above === folder ? [folder] : [folder, ...foldersFrom(above)]
}

async function readConfig(path: string, folders: readonly string[]): Promise<{ content: JsonObject; folder: string }> {
  if (/^https?:/.test(path)) {
    const text = await fetchText(new URL('/global_config_dict_yaml', path))
    const [yaml, folder = ''] = [parseYaml(text, path), folders[0]]
    return { content: parsedAs(path)(typeof yaml === 'string' ? yaml : text), folder }
  }
  const places = isAbsolute(path) ? [path] : [...new Set(folders)].map((folder) => resolve(folder, path))
  for (const place of places) {
    const text = await readFile(place, 'utf8').catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return undefined
      throw new MillraceError('config_invalid', `cannot read ${place}: ${error.message}`, { cause: error })
    })
    if (text !== undefined) return { content: parsedAs(path)(text), folder: dirname(place) }
  }
  throw new MillraceError(
    'file_not_found',
    `there is no configuration ${path} in ${folders[0]}, nor in the folders around the file that names it; check the path`,
  )
}

function parsedAs(shown: string): (text: string) => JsonObject {
  return (text) => {
    const content = parseYaml(text, shown)
    if (isJsonObject(content)) return content
    throw new MillraceError('config_invalid', `${shown} is not a configuration: it must be an object of named servers`)
  }
}
