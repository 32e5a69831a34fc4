import type { Budget } from './budget-view.ts'
import type { ChildRequest, ChildResult } from './child.ts'
import type { AssistantMessage, Json, Message, Outcome } from '../schema/index.ts'
import type { ServerCalls } from '../tools/index.ts'

/** What all of an environment's functions get. */
export interface RolloutContext<Task, State, Options> {
  readonly task: Task
  readonly options: Options
  /** What `setup` returned: this rollout's own. Children share it. */
  readonly state: State
  readonly rollout: RolloutIdentity
  /** What is left of time, turns, tokens and money. */
  readonly budget: Budget
  readonly signal: AbortSignal
  /** The environment's tool servers, for what is not left to the model: preparing them, looking at what came of it. */
  readonly servers: ServerCalls
  /**
   * Starts another rollout that shares this one's tools, state and budget, and waits for it; `update` is not asked in it.
   * In a reward, where the budget may be used up, each child has the limits of a rollout to itself.
   */
  readonly child: (request: ChildRequest) => Promise<ChildResult>
  /** Counts or measures something for this rollout; the last value wins. */
  readonly metric: (name: string, value: number) => void
  /** Keeps something with the rollout's record, for group rewards and for people. */
  readonly note: (name: string, value: Json) => void
}

export interface RolloutIdentity {
  readonly id: string
  readonly attempt: number
  readonly sample: number
  /** Repeatable randomness for this rollout. */
  readonly seed: number
}

/** Before there is a state. */
export type SetupContext<Task, Options> = Pick<
  RolloutContext<Task, never, Options>,
  'task' | 'options' | 'rollout' | 'servers' | 'signal'
>

export interface UpdateContext<Task, State, Options> extends RolloutContext<Task, State, Options> {
  readonly messages: readonly Message[]
  readonly reply: AssistantMessage
}

/** Said after a turn: go on as usual, add messages and go on, or end. */
export type Update = void | { readonly messages?: readonly Message[]; readonly end?: boolean }

export interface RewardContext<Task, State, Options> extends RolloutContext<Task, State, Options> {
  readonly messages: readonly Message[]
  /** The text of the last assistant message. */
  readonly answer: string
  readonly outcome: Outcome
  /** The policy used up its budget before it ended by itself. */
  readonly truncated: boolean
  /** How many repairs the model's tool calls needed: a reward may count them against it. */
  readonly toolRepairs: number
  /** Asks a judge model; limited and accounted as judge calls. Without a name: the run's judge, or its model. */
  readonly judge: (request: JudgeRequest) => Promise<AssistantMessage>
}

export interface JudgeRequest {
  readonly model?: string
  readonly messages: readonly Message[]
  readonly temperature?: number
  readonly maxTokens?: number
}
