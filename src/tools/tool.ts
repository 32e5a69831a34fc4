import { type ErrorCode, MillraceError } from '../errors/index.ts'
import type { ContentPart, Json, OutputOf, StandardSchema, ToolMessage, ToolRecord } from '../schema/index.ts'

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
  /** Called instead of `run`, with the arguments as the model wrote them: for a tool that passes them on to another program. */
  runWritten?(args: string, context: Context): ToolOutput | ToolAnswer | Promise<ToolOutput | ToolAnswer>
}

/** A string or content parts are shown to the model as they are; anything else as JSON. */
export type ToolOutput = string | readonly ContentPart[] | Json | void

export interface ToolResult {
  readonly message: ToolMessage
  readonly record: ToolRecord
}

/** A tool may return this instead of its bare output, to say more about the call than the model sees. */
export class ToolAnswer {
  readonly output: ToolOutput
  /** Whether the call counts as failed. The model sees the output as it is: it should say so itself. */
  readonly isError: boolean
  readonly detail: Readonly<Record<string, Json>> | undefined

  constructor(output: ToolOutput, options: { isError?: boolean; detail?: Readonly<Record<string, Json>> } = {}) {
    this.output = output
    this.isError = options.isError ?? false
    this.detail = options.detail
  }
}

/** The names of functions that OpenAI's API and servers modelled on it accept. */
export function isToolName(name: string): boolean {
  return /^[a-zA-Z0-9_-]{1,64}$/.test(name)
}

const codes: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'tool_infra',
  'replay_diverged',
  'store_failed',
  'disk_full',
  'run_gone',
])

/** Whether an error ends the attempt: infrastructure died, or nothing can be replayed or recorded any more. */
export function endsAttempt(thrown: unknown): thrown is MillraceError {
  return thrown instanceof MillraceError && codes.has(thrown.code)
}
