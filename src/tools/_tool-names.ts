import { nearestNames } from '../kit/index.ts'
import type { WrittenCall } from './written-call.ts'

export interface NamedTool {
  /** The name in native calls: unique among all tools. */
  readonly name: string
  /** The server that the tool is on and its name there; undefined for the environment's own tools. */
  readonly server?: string | undefined
  readonly serverToolName?: string | undefined
}

/** How a call names a tool. */
export interface WrittenName {
  readonly server?: string | undefined
  readonly tool: string
}

/** How many tools are listed when the model asks for one that does not exist. */
const maxListed = 50
/** How much of a name that the model made up is shown. */
const maxNameChars = 100

/** The tools that can be called, by all their names. No other tool is ever found, routed to or hinted at. */
export class ToolNames<Tool extends NamedTool> {
  readonly #tools: readonly Tool[]
  readonly #byName: ReadonlyMap<string, Tool>
  /** By server, then by the tool's name there. */
  readonly #byServer = new Map<string, Map<string, Tool>>()
  /** All tools by each of their names, native and on the server. */
  readonly #owners = new Map<string, Tool[]>()

  constructor(tools: readonly Tool[]) {
    this.#tools = tools
    this.#byName = new Map(tools.map((tool) => [tool.name, tool]))
    for (const tool of tools) {
      for (const name of namesOf(tool)) {
        const owners = this.#owners.get(name)
        if (owners) owners.push(tool)
        else this.#owners.set(name, [tool])
      }
      if (tool.server === undefined) continue
      const there = this.#byServer.get(tool.server) ?? new Map<string, Tool>()
      this.#byServer.set(tool.server, there.set(tool.serverToolName ?? tool.name, tool))
    }
  }

  /** The tool that a call names, without any guessing. */
  find({ server, tool }: WrittenName): Tool | undefined {
    if (server === undefined) return this.#byName.get(tool)
    return this.#byServer.get(server)?.get(tool)
  }

  /** Every tool that has this name, natively or on its server. */
  owners(tool: string): readonly Tool[] {
    return this.#owners.get(tool) ?? []
  }

  /** The error for a tool that several servers have, where the call does not say which. */
  ambiguous({ server, tool }: WrittenName, owners: readonly Tool[]): string {
    const which = owners.slice(0, maxListed).map((owner) => label(owner, server !== undefined))
    const where = server === undefined ? 'there is no tool' : `server ${quoted(server)} has no tool`
    const more = owners.length > maxListed ? ` and ${owners.length - maxListed} more` : ''
    return `Error: ${where} named ${quoted(tool)}, but several are called so: ${which.join(', ')}${more}. Call one of these.`
  }

  /** The error for a tool that does not exist. */
  unknown({ server, tool }: WrittenName): string {
    const isServerNamed = server !== undefined
    const where = isServerNamed ? ` on server ${quoted(server)}` : ''
    const start = `Error: there is no tool named ${quoted(tool)}${where}`
    if (this.#tools.length === 0) return `${start}; there are no tools at all.`
    const near = nearestNames(tool.slice(0, maxNameChars), this.#owners.keys()).flatMap((name) => this.owners(name))
    const suggested = [...new Set(near)].slice(0, 3).map((found) => label(found, isServerNamed))
    const suggestion = suggested.length > 0 ? ` Did you mean ${suggested.join(' or ')}?` : ''
    const listed = this.#tools.slice(0, maxListed).map((known) => label(known, isServerNamed))
    const more = this.#tools.length > maxListed ? ` and ${this.#tools.length - maxListed} more` : ''
    return `${start}.${suggestion} Tools: ${listed.join(', ')}${more}.`
  }
}

export function nameIn({ server, function: { name } }: WrittenCall): WrittenName {
  return server === undefined ? { tool: name } : { server, tool: name }
}

function namesOf({ name, serverToolName = name }: NamedTool): Iterable<string> {
  return new Set([name, serverToolName])
}

/** A tool in the words in which the model has to call it: with its server, if calls name servers. */
function label({ name, server, serverToolName = name }: NamedTool, isServerNamed: boolean): string {
  return isServerNamed && server !== undefined ? `${serverToolName} (server ${quoted(server)})` : name
}

function quoted(name: string): string {
  return `"${name.slice(0, maxNameChars)}"`
}
