import { hash } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import { MillraceError } from '../../../errors/index.ts'
import { nearestName, nearestNames } from '../../../kit/index.ts'
import type { ServerOptions } from '../config/server-config.ts'
import type { ServerEvent } from '../session/server-events.ts'

/** A tool as its server lists it. */
export interface ServerTool {
  readonly server: string
  /** The tool's name on its server. */
  readonly name: string
  readonly description?: string
  readonly inputSchema: Readonly<Record<string, unknown>>
  readonly outputSchema?: Readonly<Record<string, unknown>>
  readonly isReadOnly: boolean
  readonly isIdempotent: boolean
}

/** A server's offered tools, from all pages. The same object for as long as the list is the same. */
export interface ToolCatalogue {
  readonly server: string
  readonly tools: readonly ServerTool[]
  /** Changes with any tool's name, description or schema. */
  readonly digest: string
  /** Names in the server's `allow` and `deny` that the server does not list; left out if it lists all. */
  readonly unlisted?: readonly UnlistedName[]
}

/** Checked for the list and again for each call: a model may know a tool that it was not shown. */
export function isAllowed(tool: string, { allow, deny }: ServerOptions): boolean {
  return (allow?.includes(tool) ?? true) && !deny?.includes(tool)
}

function catalogueChanges(before: readonly ServerTool[], after: readonly ServerTool[]) {
  const earlier = new Map(before.map((tool) => [tool.name, described(tool)]))
  const added: string[] = []
  const changed: string[] = []
  for (const tool of after) {
    const was = earlier.get(tool.name)
    earlier.delete(tool.name)
    if (was === undefined) added.push(tool.name)
    else if (was !== described(tool)) changed.push(tool.name)
  }
  return { added, removed: [...earlier.keys()], changed }
}

/** The digest of the tools in a fixed order: a server that lists them in another order has not changed. */
function digestOf(tools: readonly ServerTool[]): string {
  const lines = tools.map((tool) => `${described(tool)}\n`)
  return hash('sha256', lines.sort().join(''))
}

function described(tool: ServerTool): string {
  const { name, description = '', inputSchema, outputSchema = null, isReadOnly, isIdempotent } = tool
  return JSON.stringify([name, description, inputSchema, outputSchema, isReadOnly, isIdempotent])
}

/** The tools of a server as rollouts may use them: shown in the catalogue, and looked up for each call. */
export class OfferedTools {
  readonly #server: string
  readonly #options: ServerOptions
  #catalogue: ToolCatalogue | undefined
  #byName: ReadonlyMap<string, ServerTool> = new Map()

  constructor(server: string, options: ServerOptions) {
    this.#server = server
    this.#options = options
  }

  get catalogue(): ToolCatalogue | undefined {
    return this.#catalogue
  }

  /** Takes a new list; returns an event about what has changed, if anything. */
  learn(listed: readonly ServerTool[]): ServerEvent | undefined {
    const before = this.#catalogue
    const tools = listed.filter(({ name }) => isAllowed(name, this.#options))
    const digest = digestOf(tools)
    const unlisted = unlistedNames(listed, this.#options)
    const isSame = before?.digest === digest
    if (isSame && isDeepStrictEqual(before.unlisted ?? [], unlisted)) return undefined
    this.#catalogue = { server: this.#server, tools, digest, ...(unlisted.length > 0 && { unlisted }) }
    this.#byName = new Map(tools.map((tool) => [tool.name, tool]))
    if (!before || isSame) return undefined
    return { name: 'mcp.tools_changed', server: this.#server, ...catalogueChanges(before.tools, tools) }
  }

  isIdempotent(tool: string): boolean {
    return this.#byName.get(tool)?.isIdempotent === true
  }

  /** Why a tool cannot be called, in words for the model; undefined if it can. */
  refusal(tool: string): string | undefined {
    if (this.#byName.has(tool)) return undefined
    if (!isAllowed(tool, this.#options)) return `The tool '${tool}' of server '${this.#server}' may not be used.`
    const near = nearestNames(tool, this.#byName.keys())
    const advice = near.length > 0 ? ` Did you mean ${near.map((known) => `'${known}'`).join(' or ')}?` : ''
    return `Server '${this.#server}' has no tool '${tool}'.${advice}`
  }
}

/** A name in `allow` or `deny` that is no tool of the server: misspelt, or with the prefix under which models see it. */
interface UnlistedName {
  readonly option: 'allow' | 'deny'
  readonly name: string
  /** The tool that was probably meant, as the server calls it. */
  readonly nearest?: string | undefined
}

function unlistedNames(listed: readonly ServerTool[], options: ServerOptions): UnlistedName[] {
  const known = new Set(listed.map(({ name }) => name))
  return (['allow', 'deny'] as const).flatMap((option) => {
    const missing = (options[option] ?? []).filter((name) => !known.has(name))
    return missing.map((name) => ({ option, name, nearest: nearestTool(name, known, options.prefix) }))
  })
}

function nearestTool(name: string, known: ReadonlySet<string>, prefix = ''): string | undefined {
  const bare = name.startsWith(prefix) ? name.slice(prefix.length) : name
  return known.has(bare) ? bare : nearestName(bare, known)
}

const maxShown = 5

/**
 * Checks the names in `allow` and `deny` against the lists of the servers. A misspelt name in `deny` would leave its tool offered
 * without a word, so no rollout begins before all names fit. A server whose list once fitted may change it: that is reported, and
 * stops nobody.
 */
export class NameCheck {
  /** By server, the names that did not fit the last list; an entry exists as soon as one list fitted. */
  readonly #misfits = new Map<string, string>()

  /** Throws `config_invalid` for names that never fitted. Returns those that do not fit any more, once for each list. */
  check(catalogue: ToolCatalogue): readonly string[] {
    const { server, unlisted = [] } = catalogue
    const before = this.#misfits.get(server)
    if (before === undefined) refuseUnlisted(catalogue)
    const names = unlisted.map(({ name }) => name)
    const misfits = JSON.stringify(names)
    if (misfits === before) return []
    this.#misfits.set(server, misfits)
    return names
  }
}

/** Throws `config_invalid` if a name in `allow` or `deny` is not a tool of the server. */
export function refuseUnlisted({ server, unlisted }: ToolCatalogue): void {
  if (!unlisted) return
  const problems = unlisted.slice(0, maxShown).map(({ option, name, nearest }) => {
    const hint = nearest === undefined ? '' : `; did you mean "${nearest}"?`
    return `"${option}" names "${name}", which the server does not list${hint}`
  })
  const more = unlisted.length > maxShown ? `; and ${unlisted.length - maxShown} more` : ''
  throw new MillraceError(
    'config_invalid',
    `the tool server "${server}": ${problems.join('; ')}${more} (tools go by their names on the server, without its prefix; ` +
      'with "allow" and "deny" left out, `millrace tools list` shows them all)',
    { data: { server, tool: unlisted[0]?.name } },
  )
}

/** Few lists of a server differ at the same time; beyond this the oldest are dropped, and count as new when they come again. */
const maxKept = 32

/** Gives equal lists of all sessions the same identity, so that tool boxes and compiled schemas are made once. */
export class KnownCatalogues {
  readonly #byServer = new Map<string, ToolCatalogue[]>()
  readonly #together: (readonly ToolCatalogue[])[] = []

  together(catalogues: readonly ToolCatalogue[]): readonly ToolCatalogue[] {
    const known = catalogues.map((catalogue) => this.#known(catalogue))
    const same = this.#together.find(
      (other) => other.length === known.length && other.every((catalogue, index) => catalogue === known[index]),
    )
    return same ?? keep(this.#together, known)
  }

  #known(catalogue: ToolCatalogue): ToolCatalogue {
    const { server, digest } = catalogue
    let ofServer = this.#byServer.get(server)
    if (!ofServer) this.#byServer.set(server, (ofServer = []))
    return ofServer.find((other) => other.digest === digest) ?? keep(ofServer, catalogue)
  }
}

function keep<T>(kept: T[], item: T): T {
  kept.push(item)
  if (kept.length > maxKept) kept.shift()
  return item
}
