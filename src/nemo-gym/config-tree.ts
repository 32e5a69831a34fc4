import { MillraceError } from '../errors/index.ts'
import type { Variables } from '../kit/index.ts'
import { isJsonObject, type Json, type JsonObject } from '../schema/index.ts'

/** How many references may lead from one to the next: more of them lead in a circle. */
const maxReferences = 50

/** A reference without another one in it. */
const reference = /\$\{([^${}]*)\}/

/** Merges objects as OmegaConf does: `over` wins, lists are replaced. */
export function merged(under: Json | undefined, over: Json | undefined): Json | undefined {
  if (over === undefined) return under
  if (!isJsonObject(under) || !isJsonObject(over)) return over
  const result: Record<string, Json | undefined> = { ...under }
  for (const [name, value] of Object.entries(over)) result[name] = merged(result[name], value)
  return result
}

/**
 * A configuration of NeMo Gym, merged from its files. Values are looked up when somebody needs them: what only servers of models
 * need (keys, addresses) may be missing.
 */
export class ConfigTree {
  readonly root: JsonObject
  readonly #env: Variables

  constructor(root: JsonObject, env: Variables) {
    this.root = withInherited(root)
    this.#env = env
  }

  /** The value at a path, its references followed; undefined if there is none. Throws `config_invalid` for `???`. */
  value(path: readonly string[]): Json | undefined {
    return this.#resolved(path.join('.'), path, 0)
  }

  #resolved(asked: string, path: readonly string[], depth: number): Json | undefined {
    if (depth > maxReferences) throw invalid(`${asked} refers to itself`)
    let value: Json | undefined = this.root
    for (const [index, name] of path.entries()) {
      value = isJsonObject(value) ? value[name] : undefined
      // What is referred to may be an object, with the rest of the path in it.
      if (typeof value === 'string') value = this.#filled(path.slice(0, index + 1).join('.'), value, depth)
    }
    if (value !== '???') return value
    const at = path.join('.')
    throw invalid(`${at} is ???, so it must be set: add --nemo-gym.${at}=<value> (overrides)`)
  }

  /** A text with its references followed. A reference that is the whole text stands for the value itself. */
  #filled(asked: string, text: string, depth: number): Json | undefined {
    let filled = text
    for (let count = 0; ; count += 1) {
      const found = reference.exec(filled)
      if (!found) return filled
      if (count > maxReferences) throw invalid(`${asked} refers to itself`)
      const [whole, inner = ''] = found
      const value = this.#referred(asked, inner.trim(), depth + 1)
      if (whole === filled && typeof value !== 'string') return value
      filled = filled.replace(whole, () => (typeof value === 'string' ? value : JSON.stringify(value ?? null)))
    }
  }

  #referred(asked: string, inner: string, depth: number): Json | undefined {
    const [, resolver, rest = ''] = /^([\w.]+):(.*)$/s.exec(inner) ?? []
    if (resolver === undefined) {
      const value = this.#resolved(asked, inner.split('.'), depth)
      if (value !== undefined) return value
      throw invalid(`${asked} refers to ${inner}, which is not set: add --nemo-gym.${inner}=<value> (overrides)`)
    }
    const [name = '', ...others] = rest.split(',')
    const otherwise = others.length > 0 ? scalar(others.join(',').trim()) : undefined
    if (resolver === 'oc.env' || resolver === 'env') {
      const value = this.#env[name.trim()]
      if (value !== undefined) return value
      if (otherwise !== undefined) return otherwise
      throw invalid(`${asked} needs the variable ${name.trim()}, which is not set: set it`)
    }
    if (resolver === 'oc.select') return this.#resolved(asked, name.trim().split('.'), depth) ?? otherwise ?? null
    throw invalid(
      `${asked} uses \${${resolver}:…}, which is not known here; the known ones are oc.env, env and oc.select`,
    )
  }
}

/** `_inherit_from` and `_copy` of whole servers. A server that others inherit from is none itself. */
function withInherited(root: JsonObject): JsonObject {
  const models = new Set<string>()
  const entryOf = (name: string, seen: readonly string[] = []): Json | undefined => {
    const entry = root[name]
    if (!isJsonObject(entry)) return entry
    const { _inherit_from: inherited, _copy: copied, ...own } = entry
    const from = inherited ?? copied
    if (typeof from !== 'string') return entry
    // Servers of models often inherit from one that another file has, and nobody needs them here.
    if (root[from] === undefined && isJsonObject(own['responses_api_models'])) return own
    if (root[from] === undefined || seen.includes(from)) {
      throw invalid(`${name} inherits from ${from}, which ${seen.includes(from) ? 'inherits from it' : 'is not there'}`)
    }
    if (inherited !== undefined) models.add(from)
    return merged(entryOf(from, [...seen, name]), own)
  }
  const entries = Object.keys(root).map((name) => [name, entryOf(name)] as const)
  return Object.fromEntries(entries.filter(([name]) => !models.has(name)))
}

/** A default as YAML has it. */
function scalar(text: string): Json {
  if (/^'.*'$|^".*"$/s.test(text)) return text.slice(1, -1)
  if (text === 'null') return null
  if (text === 'true' || text === 'false') return text === 'true'
  return text !== '' && Number.isFinite(Number(text)) ? Number(text) : text
}

function invalid(problem: string): MillraceError {
  return new MillraceError('config_invalid', `the configuration of NeMo Gym: ${problem}`)
}
