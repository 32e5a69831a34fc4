import { MillraceError } from '../errors/index.ts'
import { nearestName } from '../kit/index.ts'
import type { ToolDefinition, ToolRepair } from '../schema/index.ts'
import { CallPlanner, type MakeRepairer } from './_call-planner.ts'
import { PreparedTool } from './_prepared-tool.ts'
import { ToolTurn, type ToolCallOptions, type ToolResult } from './_tool-turn.ts'
import type { DescribedTool } from './formats/tool-format.ts'
import type { ResumeRule, Tool } from './tool.ts'
import type { WrittenCall } from './written-call.ts'

export interface ToolBoxOptions {
  /** Repairs calls before tools are looked up; if not given, calls are made as the model wrote them. */
  readonly makeRepairer?: MakeRepairer | undefined
  /** Longer outputs are cut; 256 K if not given. */
  readonly maxOutputChars?: number | undefined
}

export interface PlannedCall {
  readonly tool?: string
  readonly repairs: readonly ToolRepair[]
}

/** How many sets of tools that children asked for are kept; each further set is prepared anew. */
const maxPicks = 64

/**
 * The tools of an environment, prepared once for all its rollouts. `definitions` is in the order of declaration and
 * always the same array, so that a request body that holds it can be cached by identity.
 */
export class ToolBox<Context extends object> {
  readonly definitions: readonly ToolDefinition[]
  readonly #tools: ReadonlyMap<string, PreparedTool<Context>>
  readonly #planner: CallPlanner<Context>
  readonly #options: ToolBoxOptions
  readonly #picks = new Map<string, ToolBox<Context>>()

  constructor(tools: Readonly<Record<string, Tool<Context>>>, options: ToolBoxOptions = {}) {
    const { makeRepairer, maxOutputChars } = options
    const prepared = Object.entries(tools).map(([name, tool]) => new PreparedTool<Context>(name, tool, maxOutputChars))
    this.#tools = new Map(prepared.map((tool) => [tool.name, tool]))
    this.#planner = new CallPlanner(prepared, makeRepairer)
    this.#options = options
    this.definitions = prepared.map(({ definition }) => definition)
  }

  /**
   * Runs the calls of one turn, in parallel where the tools allow it; the results are in the order of the calls. Whatever
   * a tool does wrong is a result for the model to see. Rejects only with the signal's reason, at once, or with an error
   * that ends the attempt.
   */
  call(calls: readonly WrittenCall[], options: ToolCallOptions<Context>): Promise<ToolResult[]> {
    return new ToolTurn(this.#planner, calls, options).run()
  }

  /** What becomes of an earlier call on resume. A tool without a rule is not safe to repeat; an unknown one did nothing. */
  resumeRule(call: WrittenCall): ResumeRule {
    const { tool } = this.#planner.plan(call)
    return tool ? (tool.tool.resume ?? 'restart') : 'reuse'
  }

  /** The plan for a call: the tool it means, if any, and the repairs it needs. */
  planned(call: WrittenCall): PlannedCall {
    const plan = this.#planner.plan(call)
    const { repairs = [] } = plan.tool ? plan : plan.refusal
    return { ...(plan.tool && { tool: plan.tool.name }), repairs }
  }

  /** The tools for formats that describe them to the model in words. */
  described(): readonly DescribedTool[] {
    return Array.from(this.#tools.values(), ({ definition, tool: { origin } }) => ({
      definition,
      ...(origin && { server: origin.server, serverToolName: origin.name }),
    }))
  }

  /** Only the named tools, in the order of their declaration; the same box each time they are asked for. */
  pick(names: readonly string[]): ToolBox<Context> {
    const key = names.join('\n')
    const known = this.#picks.get(key)
    if (known) return known
    const unknown = names.find((name) => !this.#tools.has(name))
    if (unknown !== undefined) {
      const near = nearestName(unknown, this.#tools.keys())
      throw new MillraceError(
        'env_invalid',
        `there is no tool "${unknown}" to hand on${near ? `; did you mean "${near}"?` : ''}`,
      )
    }
    const wanted = new Set(names)
    const picked = [...this.#tools.values()].filter(({ name }) => wanted.has(name))
    const tools = Object.fromEntries(picked.map(({ name, tool }) => [name, tool]))
    const box = new ToolBox<Context>(tools, this.#options)
    if (this.#picks.size < maxPicks) this.#picks.set(key, box)
    return box
  }
}
