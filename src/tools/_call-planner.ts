import { partsText, type JsonObject, type ToolRepair } from '../schema/index.ts'
import type { Attempt, PreparedTool } from './_prepared-tool.ts'
import { nameIn, ToolNames } from './_tool-names.ts'
import type { CallRepairer, RepairTarget } from './repair/call-repair-contract.ts'
import { validate } from './validate.ts'
import type { WrittenCall } from './written-call.ts'

/** The plan for one call: the tool to run, or what the model is told instead. */
export type CallPlan<Context extends object> =
  | {
      readonly tool: PreparedTool<Context>
      /** Set where the call was repaired, or checked for repairs: these arguments replace the text of the call. */
      readonly args?: JsonObject
      readonly repairs?: readonly ToolRepair[]
    }
  | { readonly tool: undefined; readonly refusal: Attempt }

export type MakeRepairer = (targets: readonly RepairTarget[]) => CallRepairer

/** Finds out which tool a model meant, and with which arguments. Never changes the model's text. */
export class CallPlanner<Context extends object> {
  readonly #names: ToolNames<PreparedTool<Context>>
  readonly #repairer: CallRepairer | undefined

  constructor(tools: readonly PreparedTool<Context>[], makeRepairer: MakeRepairer | undefined) {
    this.#names = new ToolNames(tools)
    this.#repairer = makeRepairer?.(tools.map(targetOf))
  }

  plan(call: WrittenCall): CallPlan<Context> {
    const repaired = this.#repairer?.repair(call)
    if (repaired?.kind === 'refused') {
      const { status, message: content, repairs } = repaired
      return { tool: undefined, refusal: { status, content, repairs } }
    }
    const written = repaired ? { tool: repaired.name } : nameIn(call)
    const tool = this.#names.find(written)
    if (!tool) return { tool, refusal: { status: 'unknown_tool', content: this.#names.unknown(written) } }
    return { tool, ...(repaired && { args: repaired.arguments, repairs: repaired.repairs }) }
  }

  /** Carries out a plan. Throws only errors that end the attempt, never because of the tool or its arguments. */
  run(plan: CallPlan<Context>, call: WrittenCall, context: Context): Attempt | Promise<Attempt> {
    if (!plan.tool) return plan.refusal
    const { tool, args, repairs = [] } = plan
    if (!args || !this.#repairer) return tool.attempt(call.function.arguments, context)
    const repairer = this.#repairer
    const withRepairs = (attempt: Attempt): Attempt | Promise<Attempt> => {
      const again =
        attempt.status === 'ok' ? repairer.retryAfter(tool.name, args, partsText(attempt.content)) : undefined
      if (!again) return repairs.length > 0 ? { ...attempt, repairs } : attempt
      const all = [...repairs, again.repair]
      const second = tool.attemptWith(again.arguments, context)
      return second instanceof Promise
        ? second.then((made) => ({ ...made, repairs: all }))
        : { ...second, repairs: all }
    }
    const attempt = tool.attemptWith(args, context)
    return attempt instanceof Promise ? attempt.then(withRepairs) : withRepairs(attempt)
  }
}

function targetOf({ name, server, serverToolName, tool, definition }: PreparedTool<never>): RepairTarget {
  return {
    name,
    server,
    serverToolName,
    parameters: definition.function.parameters,
    // Arguments that the tool's own schema takes are right, even where the JSON Schema differs. A schema that answers later
    // counts as accepting.
    accepts: (args) => {
      const validated = validate(tool.parameters, args)
      return validated instanceof Promise || validated.problem === undefined
    },
  }
}
