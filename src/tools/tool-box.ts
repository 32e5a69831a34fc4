import { MillraceError } from '../errors/index.ts'
import { nearestName } from '../kit/index.ts'
import type { ToolCall, ToolDefinition } from '../schema/index.ts'
import { PreparedTool } from './_prepared-tool.ts'
import { ToolTurn, type ToolCallOptions, type ToolResult } from './_tool-turn.ts'
import type { ResumeRule, Tool } from './tool.ts'

/** Sets of tools that children asked for; beyond this many, each further set is prepared anew. */
const maxPicks = 64

/**
 * The tools of an environment, prepared once for all its rollouts. `definitions` is in the order of declaration and
 * always the same array, so that a request body that holds it can be cached by identity.
 */
export class ToolBox<Context extends object> {
  readonly definitions: readonly ToolDefinition[]
  readonly #tools: ReadonlyMap<string, PreparedTool<Context>>
  readonly #picks = new Map<string, ToolBox<Context>>()

  constructor(tools: Readonly<Record<string, Tool<Context>>>) {
    const prepared = Object.entries(tools).map(([name, tool]) => new PreparedTool<Context>(name, tool))
    this.#tools = new Map(prepared.map((tool) => [tool.name, tool]))
    this.definitions = prepared.map(({ definition }) => definition)
  }

  /**
   * Runs the calls of one turn, in parallel where the tools allow it; the results are in the order of the calls. Whatever
   * a tool does wrong is a result for the model to see. Rejects only with the signal's reason, at once, or with an error
   * that ends the attempt.
   */
  call(calls: readonly ToolCall[], options: ToolCallOptions<Context>): Promise<ToolResult[]> {
    return new ToolTurn(this.#tools, calls, options).run()
  }

  /** What becomes of a tool's earlier calls on resume. One that says nothing is not safe; one that is unknown did nothing. */
  resumeRule(name: string): ResumeRule {
    const prepared = this.#tools.get(name)
    return prepared ? (prepared.tool.resume ?? 'restart') : 'reuse'
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
    const box = new ToolBox<Context>(Object.fromEntries(picked.map(({ name, tool }) => [name, tool])))
    if (this.#picks.size < maxPicks) this.#picks.set(key, box)
    return box
  }
}
