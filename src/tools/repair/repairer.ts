import type { JsonObject, ToolRepair } from '../../schema/index.ts'
import { badArguments } from '../json-schema.ts'
import { nameIn, readArguments, type ReadArguments, ToolNames, type QualifiedToolName } from '../tool-turn.ts'
import { type CallRepairer, clipped, recorded, type RepairedCall, type RepairTarget } from './call-repair.ts'
import { readLoosely } from './loose-json.ts'
import { ParameterRepairs, type RepairedArguments } from './parameter-repairs.ts'
import type { RepairRules } from './repair-rules.ts'
import { ValueRepairs } from './value-repairs.ts'
import type { ParsedToolCall } from '../../tool-formats/index.ts'

/** Repairs calls to these tools, and to no others. The rules were validated where they came in. */
export function createRepairer(rules: RepairRules, targets: readonly RepairTarget[]): CallRepairer {
  const repairer = new Repairer(rules, targets)
  if (rules.mode !== 'log') return repairer
  // Notes what would have been repaired, repairs nothing, and asks for no second call.
  const noted = (repair: ToolRepair): ToolRepair => ({ ...repair, applied: false })
  return {
    repair: (call) => ({ ...repairer.asWritten(call), repairs: repairer.repair(call).repairs.map(noted) }),
    retryAfter: () => undefined,
  }
}

class Repairer implements CallRepairer {
  readonly #names: ToolNames<RepairableTool>
  readonly #resolver: ToolResolver
  readonly #read: (text: string) => ReadArguments

  constructor(rules: RepairRules, targets: readonly RepairTarget[]) {
    this.#names = new ToolNames(targets.map((target) => repairable(target, rules)))
    this.#resolver = new ToolResolver(this.#names, rules)
    this.#read = rules.json === true ? readLoosely : readArguments
  }

  repair(call: ParsedToolCall): RepairedCall {
    const { target, message, repairs } = this.#resolver.resolve(call)
    if (!target) return { kind: 'refused', status: 'unknown_tool', message, repairs }
    const text = call.function.arguments
    const read = this.#read(text)
    if (!read.value) return refused(call, target, read.problem, repairs)
    const made = this.#repairArguments(target, read.value, read.json)
    const steps: ToolRepair[] = [...repairs]
    if (read.isRepaired) steps.push({ rule: 'json', before: clipped(text), after: recorded(read.value) })
    steps.push(...made.repairs)
    return { kind: 'call', name: made.target.name, arguments: made.args, repairs: steps }
  }

  /** The call without any repair, for rules that only watch. */
  asWritten(call: ParsedToolCall): RepairedCall {
    const written = nameIn(call)
    const target = this.#names.find(written)
    if (!target) {
      return { kind: 'refused', status: 'unknown_tool', message: this.#names.unknown(written), repairs: [] }
    }
    const { value, problem } = readArguments(call.function.arguments)
    if (!value) return refused(call, target, problem, [])
    return { kind: 'call', name: target.name, arguments: value, repairs: [] }
  }

  retryAfter(name: string, args: JsonObject, resultText: string): ReturnType<CallRepairer['retryAfter']> {
    return this.#names.find({ tool: name })?.valueRepairs.retryAfter(args, resultText)
  }

  #repairArguments(
    target: RepairableTool,
    args: JsonObject,
    json: string,
  ): RepairedArguments & { readonly target: RepairTarget } {
    const fitted = target.parameterRepairs.repair(args, json)
    const { callInstead, ...fallen } = target.valueRepairs.fallBack(fitted.args, (tool) => this.#only(tool, target))
    const steps: RepairedArguments[] = [fitted, fallen]
    // The other tool's own fallbacks are not applied: two rules must not send a call back and forth.
    if (callInstead) steps.push(callInstead.parameterRepairs.repair(fallen.args, json))
    const final = callInstead ?? target
    const last = final.valueRepairs.rewrite(steps.at(-1)?.args ?? args)
    return { target: final, args: last.args, repairs: [...steps, last].flatMap(({ repairs }) => repairs) }
  }

  #only(tool: string, than: RepairableTool): RepairableTool | undefined {
    const [first, ...more] = this.#names.owners(tool)
    return first !== than && more.length === 0 ? first : undefined
  }
}

function refused(
  { server }: ParsedToolCall,
  { name, serverToolName = name, parameters }: RepairTarget,
  problem: string,
  repairs: readonly ToolRepair[],
): RepairedCall {
  const message = badArguments(server === undefined ? name : serverToolName, problem, parameters)
  return { kind: 'refused', status: 'bad_arguments', message, repairs }
}

type ResolvedTool =
  | { readonly target: RepairableTool; readonly message?: undefined; readonly repairs: readonly ToolRepair[] }
  /** The error `message` is for the model. */
  | { readonly target?: undefined; readonly message: string; readonly repairs: readonly ToolRepair[] }

/** Finds the tool that a call means: under its own name, under an alias, or on another server. */
class ToolResolver {
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

  resolve(call: ParsedToolCall): ResolvedTool {
    const written = nameIn(call)
    const found = this.#names.find(written)
    if (found) return { target: found, repairs: [] }
    const alias = this.#aliasOf(written)
    if (alias === undefined) return this.#route(written, [])
    return this.#route({ ...written, tool: alias }, [{ rule: 'tool_alias', before: written.tool, after: alias }])
  }

  /** A tool that really has this name goes before any alias, unless the call's server has only the alias's tool. */
  #aliasOf({ server, tool }: QualifiedToolName): string | undefined {
    const alias = this.#aliases.get(tool)
    if (alias === undefined || this.#names.owners(alias).length === 0) return undefined
    const isThere = server !== undefined && this.#names.find({ server, tool: alias }) !== undefined
    return isThere || this.#names.owners(tool).length === 0 ? alias : undefined
  }

  #route(wanted: QualifiedToolName, repairs: readonly ToolRepair[]): ResolvedTool {
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

interface RepairableTool extends RepairTarget {
  readonly parameterRepairs: ParameterRepairs
  readonly valueRepairs: ValueRepairs
}

function repairable(target: RepairTarget, rules: RepairRules): RepairableTool {
  const parameterRepairs = new ParameterRepairs(target, rules)
  return { ...target, parameterRepairs, valueRepairs: new ValueRepairs(target, rules) }
}
