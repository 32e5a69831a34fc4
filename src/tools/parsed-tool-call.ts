import { MillraceError } from '../errors/index.ts'
import { lostNumber, nearestNames } from '../kit/index.ts'
import {
  describeIssues,
  isJsonObject,
  type JsonObject,
  type OutputOf,
  type StandardSchema,
  type ToolCall,
  type ValidationIssue,
  validateStandard,
  type ValidationResult,
} from '../schema/index.ts'

/** A call as a model wrote it: natively, or in its text, where a format may name the server too. */
export interface ParsedToolCall extends ToolCall {
  readonly server?: string
}

export interface WrittenName {
  readonly server?: string | undefined
  readonly tool: string
}

export function nameIn({ server, function: { name } }: ParsedToolCall): WrittenName {
  return server === undefined ? { tool: name } : { server, tool: name }
}

export interface NamedTool {
  /** The name in native calls: unique among all tools. */
  readonly name: string
  /** The server that the tool is on and its name there; undefined for the environment's own tools. */
  readonly server?: string | undefined
  readonly serverToolName?: string | undefined
}

/** How many tools are listed when the model asks for one that does not exist. */
const maxListed = 50
/** How much of a name that the model made up is shown. */
const maxNameChars = 100

/** The tools that can be called, by all their names. No other tool is ever found, routed to or hinted at. */
export class ToolNames<Tool extends NamedTool> {
  readonly #tools: readonly Tool[]
  /** By name; tools of servers also by server and their name there. */
  readonly #byName = new Map<string, Tool>()
  /** All tools by each of their names, native and on the server. */
  readonly #owners = new Map<string, Tool[]>()

  constructor(tools: readonly Tool[]) {
    this.#tools = tools
    for (const tool of tools) {
      const { name, server, serverToolName = name } = tool
      this.#byName.set(keyOf({ tool: name }), tool)
      if (server !== undefined) this.#byName.set(keyOf({ server, tool: serverToolName }), tool)
      for (const each of new Set([name, serverToolName])) this.#owners.set(each, [...this.owners(each), tool])
    }
  }

  find(written: WrittenName): Tool | undefined {
    return this.#byName.get(keyOf(written))
  }

  owners(tool: string): readonly Tool[] {
    return this.#owners.get(tool) ?? []
  }

  ambiguous({ server, tool }: WrittenName, owners: readonly Tool[]): string {
    const where = server === undefined ? 'there is no tool' : `server ${quoted(server)} has no tool`
    return `Error: ${where} named ${quoted(tool)}, but several are called so: ${listed(owners, server)}. Call one of these.`
  }

  unknown({ server, tool }: WrittenName): string {
    const where = server === undefined ? '' : ` on server ${quoted(server)}`
    const start = `Error: there is no tool named ${quoted(tool)}${where}`
    if (this.#tools.length === 0) return `${start}; there are no tools at all.`
    const near = nearestNames(tool.slice(0, maxNameChars), this.#owners.keys()).flatMap((name) => this.owners(name))
    const suggested = [...new Set(near)].slice(0, 3).map((found) => label(found, server))
    const suggestion = suggested.length > 0 ? ` Did you mean ${suggested.join(' or ')}?` : ''
    return `${start}.${suggestion} Tools: ${listed(this.#tools, server)}.`
  }
}

function keyOf({ server, tool }: WrittenName): string {
  return server === undefined ? tool : JSON.stringify([server, tool])
}

function listed(tools: readonly NamedTool[], server: string | undefined): string {
  const more = tools.length > maxListed ? ` and ${tools.length - maxListed} more` : ''
  const labels = tools.slice(0, maxListed).map((tool) => label(tool, server))
  return `${labels.join(', ')}${more}`
}

/** A tool in the words in which the model has to call it: with its server, if the call named one. */
function label({ name, server, serverToolName = name }: NamedTool, namedServer: string | undefined): string {
  return namedServer !== undefined && server !== undefined ? `${serverToolName} (server ${quoted(server)})` : name
}

function quoted(name: string): string {
  return `"${name.slice(0, maxNameChars)}"`
}

export type ReadArguments =
  | {
      readonly value: JsonObject
      readonly problem?: undefined
      /** The JSON that was read; it differs from the model's text if that had to be repaired. */
      readonly json: string
      readonly isRepaired: boolean
    }
  /** Words to follow "bad arguments for …:". */
  | { readonly value?: undefined; readonly problem: string }

/** The arguments of a call. An empty text counts as `{}`: some models send that to a tool without parameters. */
export function readArguments(text: string): ReadArguments {
  if (text.trim() === '') return { value: {}, json: '{}', isRepaired: false }
  try {
    const value: unknown = JSON.parse(text)
    return isJsonObject(value) ? withoutLoss(value, text, false) : { problem: notAnObject(value) }
  } catch (error) {
    return { problem: `not valid JSON (${MillraceError.from(error, 'internal').rawMessage})` }
  }
}

const maxShownChars = 60

/** Refuses a number that would reach the tool as another one, such as an id of 19 digits: nobody would know. */
export function withoutLoss(value: JsonObject, json: string, isRepaired: boolean): ReadArguments {
  const lost = lostNumber(json, value)
  if (!lost) return { value, json, isRepaired }
  const { path, source } = lost
  const shown = source.length > maxShownChars ? `${source.slice(0, maxShownChars)}…` : source
  const message = `the number ${shown} cannot be passed on exactly; send it as a string if the tool takes one, or a smaller number`
  return { problem: describeIssues([{ path, message }]) }
}

function notAnObject(value: unknown): string {
  const kind = Array.isArray(value) ? 'a list' : value === null ? 'null' : `a ${typeof value}`
  return `they are ${kind}, and must be one JSON object with a name for each argument`
}

export type Validated<Value> =
  | { readonly value: Value; readonly problem?: undefined }
  | { readonly value?: undefined; readonly problem: string; readonly issues: readonly ValidationIssue[] }

/** Checks a task, options or arguments; a promise only where the schema is asynchronous. One that throws is a problem. */
export function validate<Schema extends StandardSchema>(
  schema: Schema,
  value: unknown,
): Validated<OutputOf<Schema>> | Promise<Validated<OutputOf<Schema>>> {
  try {
    const result = validateStandard(schema, value)
    return result instanceof Promise
      ? result.then((settled) => toValidated(settled, value), thrownProblem)
      : toValidated(result, value)
  } catch (error) {
    return thrownProblem(error)
  }
}

function toValidated<Value>(result: ValidationResult<Value>, given: unknown): Validated<Value> {
  if (!result.issues) return { value: result.value }
  return { problem: describeIssues(result.issues, given), issues: result.issues }
}

function thrownProblem(thrown: unknown): { problem: string; issues: readonly ValidationIssue[] } {
  const message = thrown instanceof Error ? thrown.message : String(thrown)
  return { problem: message, issues: [{ message }] }
}
