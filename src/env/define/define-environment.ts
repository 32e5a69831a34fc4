import type { Limits, Message, OutputOf, Sampling, StandardSchema } from '../../schema/index.ts'
import type { RepairRules, ServerConfig, Tool } from '../../tools/index.ts'
import type {
  Agent,
  ContextPolicy,
  FeedbackContext,
  RolloutContext,
  SetupContext,
  Update,
  UpdateContext,
} from './context.ts'
import type { GroupPolicy, Reward, RewardFunction } from '../rewards/reward.ts'
import type { ToolFormatName } from '../../tool-formats/index.ts'

/**
 * A source of tasks. It is read once, in order, and never held: it may be endless. `total` is only for progress: exact,
 * estimated (`~`) while the source is read, or not known at all.
 */
export interface TaskSource {
  /** The source's name, for messages and for the record: `questions.jsonl`, `array of 300`. */
  readonly label: string
  /** Whether the source is a table: then a field that one row lacks is missing in all rows. */
  readonly isTable?: boolean
  /** Whether the rows may be others each time they are read, as those of a generator: a stored run then goes by the rows it keeps. */
  readonly isGenerated?: boolean
  rows(): AsyncIterable<TaskRow>
  total?(): { count: number; exact: boolean } | undefined
}

/** One raw row. A row that could not be read is a row too: it fails its own rollouts, not the run. */
export type TaskRow =
  | { readonly at: string; readonly value: unknown }
  | { readonly at: string; readonly problem: string }

/** The possible sources of tasks: rows, a generator of rows (possibly endless), or a file source such as `jsonl(path)`. */
export type TaskInput = Iterable<unknown> | AsyncIterable<unknown> | TaskSource

/** How much of a tool's output a model is shown. */
export interface ToolOutputOptions {
  readonly maxChars: number
  /** Keeps the whole output in a file of the run, with a tool for the model to read it. Without it, the output is cut off. */
  readonly spill?: boolean
}

/** What a task adds to its rollouts. */
export interface TaskParts<Context> {
  /** Tools beside those of the environment. */
  readonly tools?: Readonly<Record<string, Tool<Context>>>
  /** Sampling like that of the environment: the sampling of the run goes first. */
  readonly sampling?: Sampling
}

export interface EnvironmentSpec<
  TaskSchema extends StandardSchema,
  OptionsSchema extends StandardSchema,
  State,
  ToolParameters extends Record<string, StandardSchema>,
> {
  readonly name: string
  readonly description?: string
  /** The options that `--env.<option>=<value>` may set. */
  readonly options?: OptionsSchema
  /** The names of options that only say where something is: with other values of these, a run is continued. */
  readonly addresses?: readonly string[]
  readonly task: TaskSchema
  tasks(options: NoInfer<OutputOf<OptionsSchema>>): TaskInput | Promise<TaskInput>
  /** A stable name for a task; if not given, its place in the source. */
  taskId?(task: NoInfer<OutputOf<TaskSchema>>): string | number
  /** What a task brings along. Give the same `tools` object for the same tools: it is prepared once. */
  forTask?(
    task: NoInfer<OutputOf<TaskSchema>>,
    options: NoInfer<OutputOf<OptionsSchema>>,
  ): TaskParts<RolloutContext<NoInfer<OutputOf<TaskSchema>>, NoInfer<State>, NoInfer<OutputOf<OptionsSchema>>>>
  /** The conversation to start from: a user message, or several messages. */
  prompt(
    context: SetupContext<NoInfer<OutputOf<TaskSchema>>, NoInfer<OutputOf<OptionsSchema>>> & {
      readonly state: NoInfer<State>
    },
  ): string | readonly Message[]
  setup?(context: SetupContext<NoInfer<OutputOf<TaskSchema>>, NoInfer<OutputOf<OptionsSchema>>>): State | Promise<State>
  /** Runs whenever `setup` was started, whatever happened in between. */
  teardown?(
    context: SetupContext<NoInfer<OutputOf<TaskSchema>>, NoInfer<OutputOf<OptionsSchema>>> & {
      readonly state: NoInfer<State> | undefined
    },
  ): void | Promise<void>
  readonly tools?: {
    readonly [Name in keyof ToolParameters]: Tool<
      RolloutContext<NoInfer<OutputOf<TaskSchema>>, NoInfer<State>, NoInfer<OutputOf<OptionsSchema>>>,
      ToolParameters[Name]
    >
  }
  /** Tool servers (MCP) by name, as other clients have them in `mcpServers`. Their tools stand beside the environment's own. */
  readonly mcpServers?:
    | Readonly<Record<string, ServerConfig>>
    | ((options: NoInfer<OutputOf<OptionsSchema>>) => Readonly<Record<string, ServerConfig>>)
  /** The format of tool calls, for models that write them into their text; if not given, calls are native. */
  readonly toolFormat?: ToolFormatName
  /** What is repaired in tool calls before they run; if not given, nothing. */
  readonly repair?: RepairRules
  readonly toolOutput?: ToolOutputOptions
  /** Which part of the conversation is sent with each turn; if not given, all of it. */
  readonly contextPolicy?: ContextPolicy
  /** The agent; if not given, the tool loop. */
  readonly agent?: Agent
  /** Called after each turn and its tool calls. After a reply without calls, only messages let the tool loop go on. */
  update?(
    context: UpdateContext<NoInfer<OutputOf<TaskSchema>>, NoInfer<State>, NoInfer<OutputOf<OptionsSchema>>>,
  ): Update | Promise<Update>
  readonly reward:
    | RewardFunction<NoInfer<OutputOf<TaskSchema>>, NoInfer<State>, NoInfer<OutputOf<OptionsSchema>>>
    | Readonly<Record<string, Reward<NoInfer<OutputOf<TaskSchema>>, NoInfer<State>, NoInfer<OutputOf<OptionsSchema>>>>>
  /**
   * What an agent that verifies its answer is told about it; undefined if the answer is good. If not given, an answer is good
   * from a reward of 1 on, and the agent is told the reward of any other.
   */
  feedback?(
    context: FeedbackContext<NoInfer<OutputOf<TaskSchema>>, NoInfer<State>, NoInfer<OutputOf<OptionsSchema>>>,
  ): string | undefined | Promise<string | undefined>
  readonly groupPolicy?: GroupPolicy
  /** Whether a worker that runs this is a thread, or a process, for code that is not safe to share one with. */
  readonly isolation?: 'thread' | 'process'
  readonly limits?: Partial<Limits>
  readonly sampling?: Sampling
}

/** An environment as the engine sees it: without the author's types; values were validated when they were read. */
export type Environment = EnvironmentSpec<
  StandardSchema,
  StandardSchema,
  unknown,
  Readonly<Record<string, StandardSchema>>
>

type NoOptions = StandardSchema<unknown, Readonly<Record<string, never>>>

/**
 * Describes an environment, typed from the task schema through to the reward. Write `setup` before the functions that use
 * its state: TypeScript infers from top to bottom.
 */
export function defineEnvironment<
  TaskSchema extends StandardSchema,
  OptionsSchema extends StandardSchema = NoOptions,
  State = undefined,
  ToolParameters extends Record<string, StandardSchema> = Record<string, StandardSchema>,
>(spec: EnvironmentSpec<TaskSchema, OptionsSchema, State, ToolParameters>): Environment {
  return spec
}
