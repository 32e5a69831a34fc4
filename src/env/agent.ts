import type { Budget } from './budget-view.ts'
import type { AssistantMessage, FinishReason, Message, Sampling, ToolDefinition } from '../schema/index.ts'
import type { WrittenCall } from '../tools/index.ts'
import type { RolloutContext, Update } from './context.ts'

/**
 * The loop that turns a task into an answer. It returns when the agent is done; whatever it throws becomes the outcome:
 * a spent budget as that limit's outcome, a failed model call as `model_error`, its own exception as `agent_error`.
 */
export type Agent = (context: AgentContext) => Promise<void>

export interface AgentContext {
  /** The conversation so far; `append` is the only way to add to it. */
  readonly messages: readonly Message[]
  readonly append: (...messages: readonly Message[]) => void
  /** One model turn over the conversation; the reply is appended and durable before the next turn starts. */
  readonly turn: (options?: TurnOptions) => Promise<Turn>
  readonly tools: AgentTools
  /** Asks the environment's `update` after a turn. */
  readonly update: (reply: AssistantMessage) => Promise<Update>
  /** Starts a sub-agent and waits for it. The standard agent runs it, unless the request names another. */
  readonly child: RolloutContext<unknown, unknown, unknown>['child']
  readonly budget: Budget
  readonly signal: AbortSignal
}

export interface TurnOptions {
  /** Defaults to all tools of the rollout. */
  readonly tools?: readonly ToolDefinition[]
  readonly toolChoice?: 'auto' | 'none' | 'required' | { readonly name: string }
  readonly sampling?: Sampling
}

export interface Turn {
  readonly message: AssistantMessage
  readonly finishReason: FinishReason
  /** The tool calls of the reply: native ones, or those written in its text, as the environment's format says. */
  readonly calls: readonly WrittenCall[]
}

export interface AgentTools {
  readonly definitions: readonly ToolDefinition[]
  /**
   * Runs the calls of one turn, in parallel where the tools allow it. Appends nothing and never rejects. Returns a tool
   * message for each native call, or one user message with all results for calls that were written in text.
   */
  readonly call: (calls: readonly WrittenCall[]) => Promise<readonly Message[]>
}
