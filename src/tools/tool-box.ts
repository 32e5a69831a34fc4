import { MillraceError } from '../errors/index.ts'
import { andList, describeThrown, nearestName } from '../kit/index.ts'
import {
  type ContentPart,
  isJsonObject,
  type JsonObject,
  partsText,
  type StandardSchema,
  type ToolDefinition,
  validate,
} from '../schema/index.ts'
import type { DescribedTool } from '../tool-formats/index.ts'
import { badArguments, type JsonSchema, jsonSchemaOf } from './json-schema.ts'
import type { CallRepairer, RepairedCall, RepairTarget } from './repair/call-repair.ts'
import {
  type CallPlan,
  nameIn,
  readArguments,
  type ToolCallOptions,
  ToolNames,
  type ToolOutcome,
  ToolTurn,
} from './tool-turn.ts'
import {
  endsAttempt,
  isToolName,
  type ResumeRule,
  type Tool,
  ToolAnswer,
  type ToolOutput,
  type ToolResult,
} from './tool.ts'
import type { ParsedToolCall } from '../tool-formats/index.ts'

export interface ToolBoxOptions {
  /** Repairs calls before tools are looked up; if not given, calls are made as the model wrote them. */
  readonly makeRepairer?: ((targets: readonly RepairTarget[]) => CallRepairer) | undefined
  /** Longer outputs are cut; 256 K if not given. */
  readonly maxOutputChars?: number | undefined
}

/** How many sets of tools that children asked for are kept; each further set is prepared anew. */
const maxPicks = 64

/** The tools of an environment. `definitions` is always the same array, so that a request body can be cached by identity. */
export class ToolBox<Context extends object> {
  readonly definitions: readonly ToolDefinition[]
  readonly #tools: readonly PreparedTool<Context>[]
  readonly #names: ToolNames<PreparedTool<Context>>
  readonly #repairer: CallRepairer | undefined
  readonly #options: ToolBoxOptions
  readonly #picks = new Map<string, ToolBox<Context>>()
  /** By the object with the tools that were added: an entry lives as long as that object does. */
  readonly #extended = new WeakMap<object, ToolBox<Context>>()

  constructor(tools: Readonly<Record<string, Tool<Context>>>, options: ToolBoxOptions = {}) {
    const { makeRepairer, maxOutputChars } = options
    this.#options = options
    this.#tools = Object.entries(tools).map(([name, tool]) => new PreparedTool<Context>(name, tool, maxOutputChars))
    this.#names = new ToolNames(this.#tools)
    this.#repairer = makeRepairer?.(this.#tools)
    this.definitions = this.#tools.map(({ definition }) => definition)
  }

  /**
   * Runs the calls of one turn, in parallel where the tools allow it; the results are in the order of the calls. Whatever
   * a tool does wrong is a result for the model to see. Rejects only with the signal's reason, at once, or with an error
   * that ends the attempt.
   */
  call(calls: readonly ParsedToolCall[], options: ToolCallOptions<Context>): Promise<ToolResult[]> {
    return new ToolTurn((call) => this.planned(call), calls, options).run()
  }

  /** The plan for a call: the tool it means and the repairs it needs. Never changes the model's text. */
  planned(call: ParsedToolCall): CallPlan<Context> {
    const repaired = this.#repairer?.repair(call)
    if (repaired?.kind === 'refused') {
      const { status, message: content, repairs } = repaired
      return { repairs, refusal: { status, content } }
    }
    const written = repaired ? { tool: repaired.name } : nameIn(call)
    const found = this.#names.find(written)
    if (!found) return { repairs: [], refusal: { status: 'unknown_tool', content: this.#names.unknown(written) } }
    return {
      name: found.name,
      tool: found.tool,
      repairs: repaired?.repairs ?? [],
      run: (context) =>
        repaired ? this.#callRepaired(found, repaired, context) : found.call(call.function.arguments, context),
    }
  }

  async #callRepaired(
    tool: PreparedTool<Context>,
    { arguments: args, repairs }: Extract<RepairedCall, { kind: 'call' }>,
    context: Context,
  ): Promise<ToolOutcome> {
    const first = await tool.callWith(args, context)
    const again =
      first.status === 'ok' ? this.#repairer?.retryAfter(tool.name, args, partsText(first.content)) : undefined
    if (!again) return first
    return { ...(await tool.callWith(again.arguments, context)), repairs: [...repairs, again.repair] }
  }

  /** What becomes of an earlier call on resume. A tool without a rule is not safe to repeat; an unknown one did nothing. */
  resumeRule(call: ParsedToolCall): ResumeRule {
    const { tool } = this.planned(call)
    return tool ? (tool.resume ?? 'restart') : 'reuse'
  }

  described(): readonly DescribedTool[] {
    return this.#tools
  }

  /** Only the named tools, in the order of their declaration; the same box each time they are asked for. */
  pick(names: readonly string[]): ToolBox<Context> {
    const key = names.join('\n')
    const known = this.#picks.get(key)
    if (known) return known
    const unknown = names.find((name) => !this.#names.find({ tool: name }))
    if (unknown !== undefined) {
      const all = this.#tools.map(({ name }) => name)
      const near = nearestName(unknown, all)
      const hint = near === undefined ? `the tools are ${andList(all)}` : `did you mean "${near}"?`
      throw new MillraceError(
        'env_invalid',
        `there is no tool "${unknown}" to hand on${all.length === 0 ? '' : `; ${hint}`}`,
      )
    }
    const picked = this.#tools.filter(({ name }) => names.includes(name)).map(({ name, tool }) => [name, tool])
    const box = new ToolBox<Context>(Object.fromEntries(picked), this.#options)
    if (this.#picks.size < maxPicks) this.#picks.set(key, box)
    return box
  }

  /** These tools beside its own; the same box each time for the same object. */
  with(tools: Readonly<Record<string, Tool<Context>>>): ToolBox<Context> {
    const known = this.#extended.get(tools)
    if (known) return known
    const taken = Object.keys(tools).find((name) => this.#names.find({ tool: name }))
    if (taken !== undefined) {
      throw new MillraceError(
        'env_invalid',
        `there is a tool "${taken}" already: give the one that is added another name`,
      )
    }
    const own = this.#tools.map(({ name, tool }) => [name, tool])
    const box = new ToolBox<Context>({ ...Object.fromEntries(own), ...tools }, this.#options)
    this.#extended.set(tools, box)
    return box
  }
}

/** A tool with everything about it that does not change from call to call. */
class PreparedTool<Context extends object> implements RepairTarget, DescribedTool {
  readonly name: string
  readonly tool: Tool<Context>
  readonly definition: ToolDefinition
  readonly parameters: JsonSchema
  readonly server: string | undefined
  readonly serverToolName: string | undefined
  readonly #maxOutputChars: number | undefined

  constructor(name: string, tool: Tool<Context>, maxOutputChars: number | undefined) {
    if (!isToolName(name)) {
      throw new MillraceError(
        'env_invalid',
        `"${name}" cannot be the name of a tool: use up to 64 letters, digits, "_" and "-"`,
      )
    }
    const { description, origin } = tool
    const parameters = parametersOf(name, tool.parameters)
    this.name = name
    this.tool = tool
    this.parameters = parameters
    this.server = origin?.server
    this.serverToolName = origin?.name
    this.#maxOutputChars = maxOutputChars
    this.definition = {
      type: 'function',
      function: { name, ...(description !== undefined && { description }), parameters },
    }
  }

  /** What the tool's own schema takes is right, even where the JSON Schema differs. One that answers later counts as accepting. */
  readonly accepts = (args: JsonObject): boolean => {
    const validated = validate(this.tool.parameters, args)
    return validated instanceof Promise || validated.problem === undefined
  }

  /** Makes a call. Rejects only with errors that end the attempt, never because of the tool or its arguments. */
  async call(argumentsText: string, context: Context): Promise<ToolOutcome> {
    const { tool } = this
    if (tool.runWritten) return await this.#outcomeOf(() => tool.runWritten?.(argumentsText, context))
    const { value, problem } = readArguments(argumentsText)
    return value ? await this.callWith(value, context) : this.#badArguments(problem)
  }

  async callWith(args: unknown, context: Context): Promise<ToolOutcome> {
    const checked = validate(this.tool.parameters, args)
    // Awaited only if it has to be: a tool that answers at once has run when this returns.
    const { value, problem } = checked instanceof Promise ? await checked : checked
    if (problem !== undefined) return this.#badArguments(problem)
    return await this.#outcomeOf(() => this.tool.run(value, context))
  }

  async #outcomeOf(run: () => ReturnType<Tool['run']>): Promise<ToolOutcome> {
    try {
      return this.#succeeded(await run())
    } catch (error) {
      return this.#failed(error)
    }
  }

  #succeeded(output: ToolOutput | ToolAnswer): ToolOutcome {
    if (!(output instanceof ToolAnswer)) return { status: 'ok', content: contentOf(output, this.#maxOutputChars) }
    const { isError, detail } = output
    const content = contentOf(output.output, this.#maxOutputChars)
    return { status: isError ? 'failed' : 'ok', content, ...(detail && { detail }) }
  }

  #badArguments(problem: string): ToolOutcome {
    const content = badArguments(this.name, problem, this.parameters)
    return { status: 'bad_arguments', content: contentOf(content, this.#maxOutputChars) }
  }

  #failed(thrown: unknown): ToolOutcome {
    if (endsAttempt(thrown)) throw thrown
    const { kind = ownCodeFault(thrown), place, message } = describeThrown(thrown)
    const failure = { status: 'failed', content: contentOf(`Error: ${message}`, this.#maxOutputChars) } as const
    if (kind === undefined) return failure
    const [firstLine = ''] = message.split('\n', 1)
    const threw = {
      kind: place === undefined ? kind : `${kind} at ${place}`,
      message: firstLine.slice(0, maxLineChars),
    }
    return { ...failure, threw }
  }
}

/** How much of a message's first line is kept; the result has the whole message, which may be a page. */
const maxLineChars = 300

function parametersOf(name: string, schema: StandardSchema): JsonSchema {
  let parameters: JsonSchema
  try {
    parameters = jsonSchemaOf(schema)
  } catch (error) {
    const { rawMessage } = MillraceError.from(error, 'env_invalid')
    throw new MillraceError('env_invalid', `the parameters of tool "${name}": ${rawMessage}`, { cause: error })
  }
  if (parameters['type'] === 'object') return parameters
  throw new MillraceError(
    'env_invalid',
    `the parameters of tool "${name}" must be an object, since models send named arguments: wrap them in z.object({ … })`,
  )
}

/** A `MillraceError` is no fault of the tool's code, unless it says that the code uses its context wrongly. */
function ownCodeFault(thrown: unknown): string | undefined {
  return thrown instanceof MillraceError && thrown.code === 'env_invalid' ? thrown.code : undefined
}

/** How much of one call's output a model is shown: longer outputs fill the context with text that nobody reads. */
export const defaultOutputChars = 256 * 1024

/** An image comes as one URL that cannot be cut; servers refuse longer ones than this. */
export const maxImageChars = 20 * 1024 * 1024

/** A tool's output as the content of its message. Throws where the output is not JSON (a bigint, a cycle). */
export function contentOf(output: unknown, limit = defaultOutputChars): string | readonly ContentPart[] {
  if (typeof output === 'string') return cut(output, limit)
  if (output === undefined) return ''
  if (isContentParts(output)) return cutParts(output, limit)
  return cut(JSON.stringify(output) ?? '', limit)
}

function cut(text: string, limit: number): string {
  if (text.length <= limit) return text
  const end = wholeFrom(text, limit)
  return `${text.slice(0, end)}\n[${text.length - end} of ${text.length} characters were cut off]`
}

/** The place, or the one before it if the place is in the middle of a surrogate pair. */
export function wholeFrom(text: string, place: number): number {
  const code = text.charCodeAt(place)
  return code >= 0xdc00 && code <= 0xdfff ? place - 1 : place
}

function cutParts(parts: readonly ContentPart[], limit: number): readonly ContentPart[] {
  let left = limit
  return parts.map((part): ContentPart => {
    if (part.type === 'text') {
      const text = cut(part.text, left)
      left = Math.max(0, left - part.text.length)
      return text === part.text ? part : { type: 'text', text }
    }
    if (part.type === 'other' || part.image_url.url.length <= maxImageChars) return part
    return { type: 'text', text: `[an image of ${part.image_url.url.length} characters was left out: too large]` }
  })
}

function isContentParts(output: unknown): output is readonly ContentPart[] {
  return Array.isArray(output) && output.length > 0 && output.every(isContentPart)
}

function isContentPart(part: unknown): part is ContentPart {
  if (!isJsonObject(part)) return false
  if (part['type'] === 'text') return typeof part['text'] === 'string'
  return part['type'] === 'image_url' && isJsonObject(part['image_url']) && typeof part['image_url']['url'] === 'string'
}
