import { readFile } from 'node:fs/promises'
import { dirname, isAbsolute, resolve } from 'node:path'
import { MillraceError } from '../errors/index.ts'
import { nearestName, parseYaml, type Variables } from '../kit/index.ts'
import { isJsonList, isJsonObject, type Json, type JsonObject } from '../schema/index.ts'
import { ConfigTree, merged } from './config-tree.ts'
import { type PromptTemplate, promptTemplate } from './prompt-template.ts'
import { fetchText } from './resources-server.ts'

export interface ConfigSources {
  /** Files, later ones over earlier ones, or the address of a head server, which has the whole configuration. */
  readonly configs: readonly string[]
  /** The file of a prompt for all rows. */
  readonly promptConfig?: string | undefined
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
  /** The prompt of its benchmark, or why it cannot be read. */
  readonly prompt: PromptTemplate | string | undefined
  readonly server: string
  /** Undefined if the configuration has no port for it. */
  readonly url: string | undefined
}

/** The agents of a configuration by name. Where there are none, each resources server has one of its own name: the simple agent. */
export async function readAgents(
  sources: ConfigSources,
): Promise<{ readonly agents: ReadonlyMap<string, ConfiguredAgent>; readonly prompt: PromptTemplate | undefined }> {
  const { tree, folders } = await readTree(sources)
  const { promptConfig } = sources
  const prompt = promptConfig === undefined ? undefined : await readPrompt(promptConfig, folders)
  const agents = new Map<string, ConfiguredAgent>()
  for (const [name, entry] of Object.entries(tree.root)) {
    const kinds = isJsonObject(entry) ? entry['responses_api_agents'] : undefined
    const [kind] = isJsonObject(kinds) ? Object.keys(kinds) : []
    if (kind === undefined) continue
    const at = [name, 'responses_api_agents', kind]
    const server = tree.value([...at, 'resources_server', 'name'])
    if (typeof server !== 'string') continue
    const field: ConfiguredAgent['field'] = (each) => tree.value([...at, each])
    const own = await promptOf(field('datasets'), folders)
    agents.set(name, { kind, at: at.join('.'), server, url: urlOf(tree, server), field, prompt: own })
  }
  if (agents.size > 0) return { agents, prompt }
  for (const [name, entry] of Object.entries(tree.root)) {
    if (!isJsonObject(entry) || !isJsonObject(entry['resources_servers'])) continue
    const none = { field: () => undefined, prompt: undefined }
    agents.set(name, { kind: 'simple_agent', at: name, server: name, url: urlOf(tree, name), ...none })
  }
  if (agents.size > 0) return { agents, prompt }
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

/** The prompt of an agent's benchmark. Its rows may have messages already, so that a file that is missing is told only where it is needed. */
async function promptOf(
  datasets: Json | undefined,
  folders: readonly string[],
): Promise<PromptTemplate | string | undefined> {
  const ofBenchmarks = (isJsonList(datasets) ? datasets : []).flatMap((each) =>
    isJsonObject(each) && each['type'] === 'benchmark' ? [each['prompt_config']] : [],
  )
  const [path, ...others] = new Set(ofBenchmarks.filter((each) => typeof each === 'string'))
  if (path === undefined) return undefined
  const how = 'choose one with --nemo-gym.prompt_config=<file> (promptConfig)'
  if (others.length > 0) return `the row has no \`input\`, and its agent has several prompts: ${how}`
  try {
    return await readPrompt(path, folders)
  } catch (error) {
    if (!(error instanceof MillraceError) || error.code !== 'file_not_found') throw error
    return `the row has no \`input\`, and the prompt of its agent is missing: ${error.rawMessage}; or ${how}`
  }
}

async function readPrompt(path: string, folders: readonly string[]): Promise<PromptTemplate> {
  const { content } = await readConfig(path, folders)
  return promptTemplate(content, path)
}

/** As NeMo Gym merges: files in their order, those that they name after them, `env.yaml`, and what was given by hand. */
async function readTree({
  configs,
  overrides,
  cwd,
  env,
}: ConfigSources): Promise<{ readonly tree: ConfigTree; readonly folders: readonly string[] }> {
  const waiting = configs.map((path) => ({ path, folder: cwd }))
  const known = new Set(configs)
  const folders = [cwd]
  let root: Json | undefined = {}
  for (const { path, folder } of waiting) {
    const { content, folder: beside } = await readConfig(path, [cwd, ...foldersFrom(folder)])
    root = merged(root, content)
    folders.push(...foldersFrom(beside))
    const { config_paths: more } = content
    for (const each of isJsonList(more) ? more : []) {
      if (typeof each !== 'string' || known.has(each)) continue
      known.add(each)
      waiting.push({ path: each, folder: beside })
    }
  }
  root = merged(root, await readFile(resolve(cwd, 'env.yaml'), 'utf8').then(parsedAs('env.yaml'), () => undefined))
  requireKnownKeys(root, overrides)
  const whole = merged(root, overrides)
  return { tree: new ConfigTree(isJsonObject(whole) ? whole : {}, env), folders }
}

/** Options that are given as if they were keys. */
const optionNames = ['url', 'agent', 'prompt_config']
/** Read from a configuration that need not have it. */
const ownKeys = ['default_host']

/** A server is a path. A misspelt option would be a value that nobody reads. */
function requireKnownKeys(root: Json | undefined, overrides: JsonObject = {}): void {
  const known = isJsonObject(root) ? [...Object.keys(root), ...ownKeys] : ownKeys
  const references = Array.from(JSON.stringify(root).matchAll(/\$\{(?:oc\.select:)?\s*(\w+)/g), ([, name = '']) => name)
  for (const [name, value] of Object.entries(overrides)) {
    if (isJsonObject(value) || known.includes(name) || references.includes(name)) continue
    const near = nearestName(name, [...optionNames, ...known, ...references])
    const hint = near === undefined ? 'leave it out' : `did you mean ${near}?`
    throw new MillraceError(
      'config_invalid',
      `--nemo-gym.${name} is no option and no key of the configuration; ${hint}`,
    )
  }
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
    `there is no file ${path} in ${folders[0]}, nor in the folders around the file that names it; check the path`,
  )
}

function parsedAs(shown: string): (text: string) => JsonObject {
  return (text) => {
    const content = parseYaml(text, shown)
    if (isJsonObject(content)) return content
    throw new MillraceError('config_invalid', `${shown} is not a configuration: it must be an object with names`)
  }
}
