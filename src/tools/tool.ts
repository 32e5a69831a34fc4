import type { ContentPart, Json, OutputOf, StandardSchema } from '../schema/index.ts'
import type { ToolAnswer } from './tool-answer.ts'

/**
 * What happens to a tool's earlier calls when a rollout is resumed after a crash.
 * `rerun`: called again, to rebuild the rollout's state; it must answer as before.
 * `reuse`: not called again; the recorded answer stands.
 * `restart`: neither is safe; the rollout starts over as a new attempt.
 */
export type ResumeRule = 'rerun' | 'reuse' | 'restart'

/** A tool: a typed function with a schema. `Context` is what the environment's rollout gives it. */
export interface Tool<Context = never, Parameters extends StandardSchema = StandardSchema> {
  readonly description?: string
  readonly parameters: Parameters
  /** Whether it runs alone: no other tool call of the turn runs beside it. */
  readonly exclusive?: boolean
  readonly resume?: ResumeRule
  readonly timeoutMs?: number
  /** The tool server that the tool is on and its name there; undefined for the environment's own functions. */
  readonly origin?: { readonly server: string; readonly name: string }
  run(args: OutputOf<Parameters>, context: Context): ToolOutput | ToolAnswer | Promise<ToolOutput | ToolAnswer>
}

/** A string or content parts are shown to the model as they are; anything else as JSON. */
export type ToolOutput = string | readonly ContentPart[] | Json | void
