import type { ToolRepair } from '../../schema/index.ts'
import { nameIn, type ToolNames, type WrittenName } from '../_tool-names.ts'
import type { WrittenCall } from '../written-call.ts'
import { recorded } from './_recorded.ts'
import type { RepairableTool } from './_repairable-tool.ts'
import type { RepairRules } from './repair-rules.ts'

export type ResolvedTool =
  | { readonly target: RepairableTool; readonly message?: undefined; readonly repairs: readonly ToolRepair[] }
  /** The error `message` is for the model. */
  | { readonly target?: undefined; readonly message: string; readonly repairs: readonly ToolRepair[] }

/** Finds the tool that a call means: under its own name, under an alias, or on another server. */
export class ToolResolver {
  readonly #names: ToolNames<RepairableTool>
  /** The tool that each alias stands for; the first rule for a name counts. */
  readonly #aliases = new Map<string, string>()
  readonly #isRouted: boolean

  constructor(names: ToolNames<RepairableTool>, { toolAlias = [], serverRoute = false }: RepairRules) {
    this.#names = names
    this.#isRouted = serverRoute
    for (const { from, to } of toolAlias) {
      for (const name of from) if (!this.#aliases.has(name)) this.#aliases.set(name, to)
    }
  }

  /** Only the tool that the call names, without any repair. */
  asWritten(call: WrittenCall): ResolvedTool {
    const written = nameIn(call)
    const target = this.#names.find(written)
    return target ? { target, repairs: [] } : { message: this.#names.unknown(written), repairs: [] }
  }

  resolve(call: WrittenCall): ResolvedTool {
    const written = nameIn(call)
    const found = this.#names.find(written)
    if (found) return { target: found, repairs: [] }
    const alias = this.#aliasOf(written)
    if (alias === undefined) return this.#route(written, [])
    return this.#route({ ...written, tool: alias }, [{ rule: 'tool_alias', before: written.tool, after: alias }])
  }

  /**
   * The tool that the call's name is an alias of. A tool that really has this name goes before any alias, unless the server that
   * the call names has the alias's tool and none of this name.
   */
  #aliasOf({ server, tool }: WrittenName): string | undefined {
    const alias = this.#aliases.get(tool)
    if (alias === undefined || this.#names.owners(alias).length === 0) return undefined
    const isThere = server !== undefined && this.#names.find({ server, tool: alias }) !== undefined
    return isThere || this.#names.owners(tool).length === 0 ? alias : undefined
  }

  #route(wanted: WrittenName, repairs: readonly ToolRepair[]): ResolvedTool {
    const found = this.#names.find(wanted)
    if (found) return { target: found, repairs }
    const owners = this.#isRouted ? this.#names.owners(wanted.tool) : []
    const [only] = owners
    if (!only) return { message: this.#names.unknown(wanted), repairs }
    if (owners.length > 1) return { message: this.#names.ambiguous(wanted, owners), repairs }
    const tool = only.serverToolName ?? only.name
    const after = only.server === undefined ? { tool } : { server: only.server, tool }
    return { target: only, repairs: [...repairs, { rule: 'server_route', before: recorded({ ...wanted }), after }] }
  }
}
