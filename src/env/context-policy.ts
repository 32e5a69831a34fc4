import type { Message } from '../schema/index.ts'
import type { RolloutContext } from './context.ts'

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
