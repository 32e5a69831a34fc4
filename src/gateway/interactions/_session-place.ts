import {
  callRecord,
  isSealed,
  type BrokenReply,
  type CompleteReply,
  type LaterVersion,
  type PartialReply,
} from '../../inference/index.ts'
import { isNestedWithin } from '../../kit/index.ts'
import {
  maxOriginalDepth,
  type CallRecord,
  type ClientApi,
  type DiscardReason,
  type ItemIds,
  type OriginalReply,
  type SamplingRecord,
} from '../../schema/index.ts'
import type { Journal } from '../../store/index.ts'
import type { CompleteTokens } from '../captured-tokens.ts'
import { summedTurn, type TurnTokens } from '../token-sum.ts'
import type { LiveInteraction } from './live-interaction.ts'
import type { OpenSession, SessionMemory } from '../sessions/open-session.ts'
import type { TreeNode } from '../sessions/tree-node.ts'
import type { ReplyFacts } from '../sessions/unheard-replies.ts'

/** How a reply is known to its client. */
export interface ReplyName {
  readonly replyId: string
  readonly api: ClientApi
  readonly itemIds?: ItemIds
  readonly hasInstructions?: true
  readonly dropped?: readonly string[]
  readonly sampling: SamplingRecord
  /** The names of the functions that the model could call. */
  readonly tools: readonly string[]
}

/** The name of a reply that did not end, with its estimated usage. */
export type LostName = Partial<ReplyName> & Pick<CallRecord, 'usage' | 'cost'>

export interface SessionPlaceOptions {
  readonly session: OpenSession
  readonly memory: SessionMemory
  readonly journal: Journal
  /** The message that a reply is to follow. */
  readonly leaf: TreeNode | undefined
  readonly key: string
}

/** The place of one interaction in its session, where its result is recorded. The session's memory is held meanwhile. */
export class SessionPlace {
  readonly session: OpenSession
  readonly #memory: SessionMemory
  readonly #journal: Journal
  readonly #leaf: TreeNode | undefined
  readonly #key: string
  #reply: (ReplyFacts & { readonly node: TreeNode }) | undefined
  #turn: TurnTokens | undefined

  constructor({ session, memory, journal, leaf, key }: SessionPlaceOptions) {
    this.session = session
    this.#memory = memory
    this.#journal = journal
    this.#leaf = leaf
    this.#key = key
  }

  enter(interaction: LiveInteraction): void {
    this.session.running.add(interaction)
    this.session.touch()
    this.#memory.recent.begin(this.#key, interaction)
  }

  /** How the recorded reply follows the one before it; undefined if either has no tokens, or nobody knows those before it. */
  get turn(): TurnTokens | undefined {
    return this.#turn
  }

  /** Records a complete reply. `tokens`: those that training takes; if they did not come, whether they were asked for. */
  recordReply(reply: CompleteReply, name: ReplyName, tokens: CompleteTokens | 'missing' | 'unasked'): void {
    const { tree, tally } = this.#memory
    const isComplete = typeof tokens === 'object'
    const summed = isComplete ? summedTurn(tokens, this.#leaf?.sum) : undefined
    const origin = {
      call: {
        ...callRecord(reply),
        ...name,
        ...(tokens === 'missing' && { tokensMissing: true as const }),
        ...(reply.stopSequence !== undefined && { stopSequence: reply.stopSequence }),
        ...(reply.stopReason !== undefined && { stopReason: reply.stopReason }),
        ...(isKept(reply.original, name.api) && { original: reply.original }),
        requestKey: this.#key,
      },
      ...(reply.tokens && { tokens: reply.tokens }),
    }
    const facts = { call: origin.call, lacksTokens: !isComplete }
    const node = tree.addSample(this.#leaf, reply.message, origin)
    node.sum = summed?.sum ?? this.#leaf?.sum
    this.#turn = summed?.turn
    this.#reply = { ...facts, node }
    tally.add(facts)
    if (reply.laterVersion) this.#recordLater(this.#reply.node.seq, reply.laterVersion)
  }

  /** Records the version of a reply's weights when it is known. */
  #recordLater(node: number, later: LaterVersion): void {
    const { id: session, dueVersions } = this.session
    const recorded = later.find().then((version) => {
      dueVersions.delete(due)
      if (version !== undefined) this.#journal.append({ kind: 'version', session, node, version })
    })
    const due = { recorded, look: () => later.look() }
    dueVersions.add(due)
  }

  /** Records what was received of a reply that did not end. */
  recordLost({ message, tokens }: PartialReply, reply: BrokenReply, name: LostName): void {
    const { model, backend, tries } = reply
    const [ms, waitMs] = [Math.round(reply.ms), Math.round(reply.waitMs)]
    const discarded = { model, backend, tries, ms, waitMs, ...name, why: reasonOf(reply) }
    this.#memory.tree.addSample(this.#leaf, message, { discarded, ...(tokens && { tokens }) })
    this.#memory.tally.add({ discarded })
  }

  /** Resolves when the record survives any end of the gateway; undefined if it does already. */
  written(): Promise<void> | undefined {
    return this.#journal.written()
  }

  /** Forgets the interaction, so that no retry finds it. */
  forget(interaction: LiveInteraction): void {
    this.#memory.recent.end(interaction)
  }

  /** Ends the interaction. `wasHeard`: whether a client that asked for the reply was still there. */
  leave(interaction: LiveInteraction, wasHeard: boolean): void {
    const reply = this.#reply
    this.#memory.recent.end(interaction, reply && { seq: reply.node.seq, wasHeard })
    if (reply && !wasHeard) this.#memory.unheard.add(reply.node.seq, reply)
    this.session.running.delete(interaction)
    this.session.touch()
  }
}

/** Whether the original is for a client of its API, which may be told it again, or for its backend, which signed what it thought. */
function isKept(original: OriginalReply | undefined, api: ClientApi): original is OriginalReply {
  if (!original) return false
  return original.api === api ? isNestedWithin(maxOriginalDepth, original.output) : isSealed(original)
}

/** Why a reply was lost. If it was aborted, the error says by whom. */
function reasonOf({ status, error }: BrokenReply): DiscardReason {
  if (status !== 'aborted') return status
  if (error.code === 'session_ended') return 'session_ended'
  return error.code === 'closed' ? 'shutdown' : 'client_gone'
}
