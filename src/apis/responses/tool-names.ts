import type { ToolDefinition } from '../../schema/index.ts'

export interface ClientTool {
  /** `custom`: a freeform tool, whose input is a text. */
  readonly kind: 'function' | 'custom'
  readonly name: string
  readonly namespace?: string | undefined
}

/** Servers of Chat accept function names up to this length. */
const maxNameChars = 64

const separator = '__'

/**
 * The functions that stand for the tools of a Responses request in other APIs, which have neither namespaces nor freeform
 * tools. A tool in a namespace is the function `namespace__name`. The names depend only on the tools and on their order, and
 * a tool that is declared later never renames an earlier one: calls of a conversation that is sent back keep their names.
 */
export class ToolNames {
  readonly #functions = new Map<string, ToolDefinition>()
  readonly #names = new Map<string, string>()
  readonly #tools = new Map<string, ClientTool>()

  get functions(): ToolDefinition[] {
    return [...this.#functions.values()]
  }

  /** Adds the function of a tool, described under the tool's own name. A tool that is declared again replaces the former. */
  declare(tool: ClientTool, described: ToolDefinition): void {
    const name = this.nameOf(tool)
    this.#tools.set(name, tool)
    this.#functions.set(name, { type: 'function', function: { ...described.function, name } })
  }

  /** The name of a tool's function. It is given to the tool, if the tool has none yet. */
  nameOf(tool: ClientTool): string {
    const key = JSON.stringify([tool.namespace ?? '', tool.name])
    let name = this.#names.get(key)
    if (name === undefined) {
      name = this.#freeName(flatName(tool))
      this.#names.set(key, name)
      this.#tools.set(name, tool)
    }
    return name
  }

  /** The tool that a function stands for; undefined if the client declared none: a model may call what does not exist. */
  toolOf(name: string): ClientTool | undefined {
    return this.#tools.get(name)
  }

  #freeName(wanted: string): string {
    let name = wanted
    for (let number = 2; this.#tools.has(name); number += 1) {
      const ending = `_${number}`
      name = wanted.slice(0, maxNameChars - ending.length) + ending
    }
    return name
  }
}

/** Names of MCP servers' namespaces may end with a separator already: `mcp__files__`. */
function flatName({ name, namespace }: ClientTool): string {
  if (!namespace) return name
  const flat = namespace.endsWith(separator) ? namespace + name : namespace + separator + name
  // A long namespace is cut, not the name of the tool.
  return flat.length > maxNameChars ? flat.slice(-maxNameChars) : flat
}
