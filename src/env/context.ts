import type { Budget } from './budget-view.ts'
import type { ChildRequest, ChildResult } from './child.ts'
import type { AssistantMessage, Json, Message, Outcome } from '../schema/index.ts'
import type { ServerCalls } from '../tools/index.ts'

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
  /**
   * The environment's tool servers, for calls that are not left to the model: to prepare the servers, or to check the
   * result.
   */
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
  /** The model's message of this turn. */
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

export interface JudgeRequest {
  readonly model?: string
  readonly messages: readonly Message[]
  readonly temperature?: number
  readonly maxTokens?: number
}
