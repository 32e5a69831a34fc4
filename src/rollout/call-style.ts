import type { ToolAnswers } from '../inference/index.ts'
import type { AssistantMessage, Message, MessageNode, ToolDefinition } from '../schema/index.ts'
import type { ToolResult, WrittenCall } from '../tools/index.ts'
import type { RolloutTools } from './toolkit.ts'

/** A message that answers tool calls, and how it came to be. */
export interface AnswerMessage {
  readonly message: Message
  readonly answers: ToolAnswers
}

/** How a model is told of its tools, how it calls them and how it gets their results. */
export interface CallStyle {
  /** The messages a rollout opens with, tools described in them where the style does that. */
  opening(prompt: readonly Message[], tools: Pick<RolloutTools['box'], 'described'>): readonly Message[]
  /** What a request says about tools beside its messages. */
  declared(definitions: readonly ToolDefinition[]): readonly ToolDefinition[]
  /** The calls in the reply of a turn; turns count from 0. */
  callsIn(reply: AssistantMessage, turn: number): readonly WrittenCall[]
  answer(calls: readonly WrittenCall[], results: readonly ToolResult[]): readonly AnswerMessage[]
  /**
   * The recorded result of the call at `index` of a turn, in a form that `answer` turns into the same message again. `recorded`
   * gives the node that stands so many messages after the turn's reply.
   */
  recall(recorded: (offset: number) => MessageNode | undefined, index: number): ToolResult | undefined
}
