import type { MillraceError } from '../../errors/index.ts'
import type {
  AssistantMessage,
  FinishReason,
  Json,
  Message,
  Outcome,
  Sampling,
  StandardSchema,
  ToolDefinition,
  Usage,
} from '../../schema/index.ts'
import type { ResponseFormat } from '../../apis/index.ts'
import type { ServerCalls, Tool } from '../../tools/index.ts'
import type { ParsedToolCall } from '../../tool-formats/index.ts'

/** The context that all functions of an environment get. */
export interface RolloutContext<Task, State, Options> {
  readonly task: Task
  readonly options: Options
  /** What `setup` returned for this rollout. Children share it. */
  readonly state: State
  readonly rollout: RolloutIdentity
  /** The rest of time, turns, tokens and money. */
  readonly budget: Budget
  readonly signal: AbortSignal
  /** The environment's tool servers, for calls of its own: to prepare the servers, or to check the result. */
  readonly servers: ServerCalls
  /**
   * Starts another rollout that shares this one's tools, state and budget, and waits for it; its turns do not call `update`.
   * In a reward, where the budget may be used up, each child has the full limits of a rollout.
   */
  readonly child: (request: ChildRequest) => Promise<ChildResult>
  /** Records a number for this rollout; the last value of a name wins. */
  readonly metric: (name: string, value: number) => void
  /** Keeps a value with the rollout's record, for group rewards and for people. */
  readonly note: (name: string, value: Json) => void
}

export interface RolloutIdentity {
  readonly id: string
  readonly attempt: number
  readonly sample: number
  /** A seed for repeatable randomness in this rollout. */
  readonly seed: number
}

/** The context before there is a state. */
export type SetupContext<Task, Options> = Pick<
  RolloutContext<Task, never, Options>,
  'task' | 'options' | 'rollout' | 'servers' | 'signal'
>

export interface UpdateContext<Task, State, Options> extends RolloutContext<Task, State, Options> {
  readonly messages: readonly Message[]
  readonly reply: AssistantMessage
}

/**
 * The environment's answer after a turn. With `end: true` the rollout ends. With at least one message it goes on, after
 * the messages were added. With neither, the tool loop goes on if the reply had tool calls, and ends if it had none.
 */
export type Update = void | { readonly messages?: readonly Message[]; readonly end?: boolean }

export interface RewardContext<Task, State, Options> extends RolloutContext<Task, State, Options> {
  readonly messages: readonly Message[]
  /** The text of the last assistant message. */
  readonly answer: string
  readonly outcome: Outcome
  /** Whether the policy used up its budget before it ended by itself. */
  readonly truncated: boolean
  /** How many repairs the model's tool calls needed: a reward may deduct them. */
  readonly toolRepairs: number
  /** Asks a judge model. Its calls have limits and accounts of their own. The default is the run's judge, or else its model. */
  readonly judge: (request: JudgeRequest) => Promise<AssistantMessage>
}

/** What `feedback` is given: the context of the reward, with what the reward came to. */
export interface FeedbackContext<Task, State, Options> extends RewardContext<Task, State, Options> {
  readonly reward: number
  readonly rewards: Readonly<Record<string, number>>
}

export interface JudgeRequest {
  readonly model?: string
  readonly messages: readonly Message[]
  readonly temperature?: number
  readonly maxTokens?: number
}

/**
 * The loop that turns a task into an answer. It returns when the agent is done; whatever it throws becomes the outcome:
 * a spent budget as that limit's outcome, a failed model call as `model_error`, its own exception as `agent_error`.
 */
export interface Agent {
  (context: AgentContext): Promise<void>
  /** It opens the conversation itself, with what it appends, in place of the prompt. */
  readonly opensConversation?: true
}

export interface AgentContext {
  readonly task: unknown
  /** How many agents stand above this one: 0 for that of the rollout, 1 for its children. */
  readonly depth: number
  /** What the environment asks. The conversation begins with it, unless the agent opens that itself. */
  readonly prompt: readonly Message[]
  /** The name of the model that `turn` asks. */
  readonly model: string
  /** The conversation so far; `append` is the only way to add to it. */
  readonly messages: readonly Message[]
  readonly append: (...messages: readonly Message[]) => void
  /** One model turn over the conversation; the reply is appended and durable before the next turn starts. */
  readonly turn: (options?: TurnOptions) => Promise<Turn>
  readonly tools: AgentTools
  /** Asks the environment's `update` after a turn. */
  readonly update: (reply: AssistantMessage) => Promise<Update>
  /**
   * Scores the conversation so far as if the agent had ended here, with the environment's rewards except those of groups. It is
   * recorded: a resumed or replayed rollout hears the same. Like the reward at the end, it takes none of the agent's working
   * time and none of its budget; the wall clock goes on. If the reward fails, the rollout ends as `reward_error`.
   */
  readonly verify: () => Promise<Verification>
  /** Starts a sub-agent and waits for it. The standard agent runs it, unless the request names another. */
  readonly child: RolloutContext<unknown, unknown, unknown>['child']
  /** Throws `env_invalid` if the rollout has no such tools, or the run no such model: a child with them could not start. */
  readonly requireNames: (names: {
    readonly tools?: readonly string[] | undefined
    readonly model?: string | undefined
  }) => void
  readonly note: RolloutContext<unknown, unknown, unknown>['note']
  readonly budget: Budget
  readonly signal: AbortSignal
  /** Keeps what is being opened until the agent has ended, however it ends. It is closed before the rollout goes on. */
  readonly use: <Kept extends AsyncDisposable>(opening: Promise<Kept>) => Promise<Kept>
}

/** What the environment's reward says of a conversation that is not over. */
export interface Verification {
  readonly reward: number
  /** The score of each component by its name, without its weight. */
  readonly rewards: Readonly<Record<string, number>>
  /** What to tell the policy; undefined if the answer is good. */
  readonly feedback?: string
}

export interface TurnOptions {
  /** Defaults to all tools of the rollout. */
  readonly tools?: readonly ToolDefinition[]
  readonly toolChoice?: 'auto' | 'none' | 'required' | { readonly name: string }
  readonly sampling?: Sampling
  readonly responseFormat?: ResponseFormat
  /** Whether the reply may call several tools; the backend's own habit if not given. */
  readonly parallelToolCalls?: boolean
}

export interface Turn {
  readonly message: AssistantMessage
  readonly finishReason: FinishReason
  /** The tool calls of the reply: native ones, or those written in its text, as the environment's format says. */
  readonly calls: readonly ParsedToolCall[]
  readonly usage: Usage
}

export interface AgentTools {
  readonly definitions: readonly ToolDefinition[]
  /**
   * Runs the calls of one turn, in parallel where the tools allow it. Appends nothing and never rejects. Returns a tool
   * message for each native call, or one user message with all results for calls that were written in text.
   */
  readonly call: (calls: readonly ParsedToolCall[]) => Promise<readonly Message[]>
  /** Whether a message that `call` returned says that a call failed. */
  readonly hasFailed: (answer: Message) => boolean
  /** These tools beside the others, for this agent. Give the same object each time: it is prepared once. */
  readonly with: <Parameters extends Readonly<Record<string, StandardSchema>>>(tools: {
    readonly [Name in keyof Parameters]: Tool<RolloutContext<unknown, unknown, unknown>, Parameters[Name]>
  }) => AgentTools
  /** Only the named ones of these tools. */
  readonly only: (names: readonly string[]) => AgentTools
}

export interface ChildRequest {
  /** A user message, or a whole conversation to start from. */
  readonly prompt: string | readonly Message[]
  /** The names of the parent's tools that the child may use; all of them if not given. */
  readonly tools?: readonly string[]
  /** The standard agent, `toolLoop()`, if not given: also where the environment has an agent of its own. */
  readonly agent?: Agent
  readonly model?: string
  readonly sampling?: Sampling
  /** Limits within what the parent has left; the child never gets more than that. */
  readonly limits?: { readonly maxTurns?: number; readonly maxTokens?: number; readonly timeoutMs?: number }
  /**
   * It is started beside turns of its parent, which may or may not have ended then: a resumed or replayed parent finds it by
   * its prompt alone, and not by the number of turns before it.
   */
  readonly alongside?: boolean
}

/** The result of a child, also of a failed one. Only if its tool servers are gone does the parent end too. */
export interface ChildResult {
  readonly id: string
  readonly outcome: Outcome
  /** Why it ended; left out if it ended by itself. */
  readonly error?: MillraceError
  readonly answer: string
  readonly messages: readonly Message[]
  readonly turns: number
  readonly usage: Usage
}

/** The rest of a rollout's budget, for agents and tools to read. Infinity for what is not limited. */
export interface Budget {
  readonly turnsLeft: number
  readonly tokensLeft: number
  readonly costLeftUsd: number
  readonly workingMsLeft: number
  readonly wallMsLeft: number
}

/**
 * Decides which part of a conversation is sent with the next model call. A policy acts on the copy that is sent: the record
 * keeps every message. Messages that it does not change must be passed on as the same objects, since their JSON is made once.
 *
 * A policy must give the same result for the same views. It is called for every turn, also for those that a resumed rollout
 * takes from its journal: that builds up its `memory` again.
 */
export type ContextPolicy = (view: ContextView) => readonly Message[] | Promise<readonly Message[]>

export interface ContextView {
  /** The conversation as it is recorded. */
  readonly messages: readonly Message[]
  /** How many of the messages the conversation was opened with: the prompt, which may include examples of replies. */
  readonly openingLength: number
  /** The tokens of the last call's prompt; undefined before the first call, or if the backend does not tell. */
  readonly promptTokens: number | undefined
  /** Whether a message carries results of tools: a tool message, or a user message that answers calls written in text. */
  readonly isToolResult: (message: Message) => boolean
  /** Asks a model through a child, which is recorded, accounted and resumed like any child of the rollout. */
  readonly child: RolloutContext<unknown, unknown, unknown>['child']
  /** Memory of this conversation alone, from its first turn to its last. */
  readonly memory: Map<string, unknown>
  readonly signal: AbortSignal
}
