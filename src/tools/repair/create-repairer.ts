import type { JsonObject, ToolRepair } from '../../schema/index.ts'
import { describeParameters } from '../_describe-parameters.ts'
import { readArguments, type ReadArguments } from '../_read-arguments.ts'
import { ToolNames } from '../_tool-names.ts'
import type { WrittenCall } from '../written-call.ts'
import type { RepairedArguments } from './_parameter-repairs.ts'
import { readLoosely } from './_read-loosely.ts'
import { clipped, recorded } from './_recorded.ts'
import { repairable, type RepairableTool } from './_repairable-tool.ts'
import { ToolResolver } from './_resolve-tool.ts'
import type { CallRepairer, RepairedCall, RepairTarget } from './call-repair-contract.ts'
import type { RepairRules } from './repair-rules.ts'

/** Repairs calls to these tools, and to no others. The rules were validated where they came in. */
export function createRepairer(rules: RepairRules, targets: readonly RepairTarget[]): CallRepairer {
  const repairer = new Repairer(rules, targets)
  return rules.mode === 'log' ? new RepairLog(repairer) : repairer
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

  repair(call: WrittenCall): RepairedCall {
    const { target, message, repairs } = this.#resolver.resolve(call)
    if (!target) return { kind: 'refused', status: 'unknown_tool', message, repairs }
    const text = call.function.arguments
    const read = this.#read(text)
    if (!read.value) return badArguments(call, target, { problem: read.problem, repairs })
    const made = this.#repairArguments(target, read.value, read.json)
    const steps: ToolRepair[] = [...repairs]
    if (read.isRepaired) steps.push({ rule: 'json', before: clipped(text), after: recorded(read.value) })
    steps.push(...made.repairs)
    return { kind: 'call', name: made.target.name, arguments: made.args, repairs: steps }
  }

  /** The call without any repair, for rules that only watch. */
  asWritten(call: WrittenCall): RepairedCall {
    const { target, message, repairs } = this.#resolver.asWritten(call)
    if (!target) return { kind: 'refused', status: 'unknown_tool', message, repairs }
    const { value, problem } = readArguments(call.function.arguments)
    if (!value) return badArguments(call, target, { problem, repairs })
    return { kind: 'call', name: target.name, arguments: value, repairs }
  }

  retryAfter(name: string, args: JsonObject, resultText: string): ReturnType<CallRepairer['retryAfter']> {
    return this.#names.find({ tool: name })?.valueRepairs.retryAfter(args, resultText)
  }

  #repairArguments(target: RepairableTool, args: JsonObject, json: string): MovedArguments {
    const fitted = target.parameterRepairs.repair(args, json)
    const { callInstead, ...fallen } = target.valueRepairs.fallBack(fitted.args, (tool) => this.#only(tool, target))
    const steps: RepairedArguments[] = [fitted, fallen]
    // The other tool's own fallbacks are not applied: two rules must not send a call back and forth.
    if (callInstead) steps.push(callInstead.parameterRepairs.repair(fallen.args, json))
    const final = callInstead ?? target
    const last = final.valueRepairs.rewrite(steps.at(-1)?.args ?? args)
    return { target: final, args: last.args, repairs: [...steps, last].flatMap(({ repairs }) => repairs) }
  }

  /** The only tool of a name, if that is not `than`. */
  #only(tool: string, than: RepairableTool): RepairableTool | undefined {
    const [first, ...more] = this.#names.owners(tool)
    return first !== than && more.length === 0 ? first : undefined
  }
}

interface MovedArguments extends RepairedArguments {
  readonly target: RepairTarget
}

/** Notes what would have been repaired, and repairs nothing. */
class RepairLog implements CallRepairer {
  readonly #repairer: Repairer

  constructor(repairer: Repairer) {
    this.#repairer = repairer
  }

  repair(call: WrittenCall): RepairedCall {
    const { repairs } = this.#repairer.repair(call)
    return { ...this.#repairer.asWritten(call), repairs: repairs.map(onlyNoted) }
  }

  /** Never asks for a second call: rules that only watch make none. */
  retryAfter(): undefined {
    return undefined
  }
}

function onlyNoted(repair: ToolRepair): ToolRepair {
  return { ...repair, applied: false }
}

function badArguments(
  { server }: WrittenCall,
  { name, serverToolName = name, parameters }: RepairTarget,
  { problem, repairs }: { readonly problem: string; readonly repairs: readonly ToolRepair[] },
): RepairedCall {
  const written = server === undefined ? name : serverToolName
  const expected = describeParameters(parameters)
  const message = `Error: bad arguments for ${written}: ${problem}. Expected ${expected}. Correct them and call it again.`
  return { kind: 'refused', status: 'bad_arguments', message, repairs }
}
