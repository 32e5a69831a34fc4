import type { Message } from '../schema/index.ts'
import type { RolloutContext } from './context.ts'

/**
 * Decides what of a conversation is sent with the next model call. It acts on the copy that is sent: the record keeps every
 * message. Messages it does not change are passed on as the very same objects, since their JSON was made once.
 *
 * It must come to the same for the same views, and is asked for every turn, also for those a resumed rollout takes from its
 * journal: what it keeps in `memory` is built up again that way.
 */
export type ContextPolicy = (view: ContextView) => readonly Message[] | Promise<readonly Message[]>

export interface ContextView {
  /** The conversation as it is recorded. */
  readonly messages: readonly Message[]
  /** How many of them it was opened with: the prompt, in which there may be examples of replies, too. */
  readonly openingLength: number
  /** How many tokens the prompt of the last call had; undefined before the first, or if the backend does not say. */
  readonly promptTokens: number | undefined
  /** Whether a message carries results of tools: a tool message, or a user message that answers calls written in text. */
  readonly isToolResult: (message: Message) => boolean
  /** Asks a model: journalled, accounted and resumed as any child of the rollout. */
  readonly child: RolloutContext<unknown, unknown, unknown>['child']
  /** This conversation's own, from its first turn to its last. */
  readonly memory: Map<string, unknown>
  readonly signal: AbortSignal
}
