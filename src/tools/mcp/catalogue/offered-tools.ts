import { nearestNames } from '../../../kit/index.ts'
import { buildCatalogue, catalogueChanges, isAllowed, isSameCatalogue } from './build-catalogue.ts'
import type { ServerOptions } from '../config/server-config.ts'
import type { ServerEvent } from '../session/server-events.ts'
import type { ServerTool, ToolCatalogue } from './tool-catalogue.ts'

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

  /** The latest catalogue; the same object for as long as the list is the same. */
  get catalogue(): ToolCatalogue | undefined {
    return this.#catalogue
  }

  /** Takes a new list; returns an event about what has changed, if anything. */
  learn(listed: readonly ServerTool[]): ServerEvent | undefined {
    const before = this.#catalogue
    const catalogue = buildCatalogue(this.#server, listed, this.#options)
    if (before && isSameCatalogue(before, catalogue)) return undefined
    this.#catalogue = catalogue
    this.#byName = new Map(catalogue.tools.map((tool) => [tool.name, tool]))
    if (!before || before.digest === catalogue.digest) return undefined
    return { name: 'mcp.tools_changed', server: this.#server, ...catalogueChanges(before, catalogue) }
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
