import { callRecord, type BrokenReply, type CompleteReply, type PartialReply } from '../inference/index.ts'
import type { ClientApi, DiscardReason, DiscardRecord, ItemIds, Usage } from '../schema/index.ts'
import type { Journal } from '../store/index.ts'
import type { LiveInteraction } from './_live-interaction.ts'
import type { OpenSession, SessionMemory } from './_open-session.ts'
import type { TreeNode } from './session-tree.ts'

/** How a reply is known to its client. */
export interface ReplyName {
  readonly replyId: string
  readonly api: ClientApi
  readonly itemIds?: ItemIds
}

export interface SessionPlaceOptions {
  readonly session: OpenSession
  readonly memory: SessionMemory
  readonly journal: Journal
  /** The message that a reply is to follow. */
  readonly leaf: TreeNode | undefined
  readonly key: string
}

/** Where one interaction stands in its session, and how what comes of it is kept there. The memory is held meanwhile. */
export class SessionPlace {
  readonly session: OpenSession
  readonly #memory: SessionMemory
  readonly #journal: Journal
  readonly #leaf: TreeNode | undefined
  readonly #key: string
  #reply: TreeNode | undefined

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

  /** `lacksTokens`: it came without the tokens that were asked for. */
  recordReply(reply: CompleteReply, name: ReplyName, lacksTokens: boolean): void {
    const { tree, tally } = this.#memory
    const origin = { call: { ...callRecord(reply), ...name }, ...(reply.tokens && { tokens: reply.tokens }) }
    this.#reply = tree.addSample(this.#leaf, reply.message, origin)
    tally.add(origin)
    if (lacksTokens) tally.lacksTokens = true
  }

  /** What came of a reply that did not end, if anything did. */
  recordLost({ message, tokens }: PartialReply, reply: BrokenReply, name: Partial<ReplyName>): void {
    const isEmpty = !message.content && !message.reasoning_content && !message.refusal && !message.tool_calls?.length
    if (isEmpty && !tokens?.ids.length) return
    const usage = { calls: 1, input: tokens?.promptIds?.length ?? 0, cachedInput: 0, output: tokens?.ids.length ?? 0 }
    const discarded = lostRecord(reply, { ...usage, reasoning: 0 }, name)
    this.#memory.tree.addSample(this.#leaf, message, { discarded, ...(tokens && { tokens }) })
    this.#memory.tally.add({ discarded })
  }

  /** Resolves when what was recorded is on disk; undefined if it is. */
  durable(): Promise<void> | undefined {
    return this.#journal.durable()
  }

  /** A retry finds it no more, unless its reply is recorded already. */
  forget(interaction: LiveInteraction): void {
    if (this.#reply) return
    this.#memory.recent.end(this.#key, interaction)
  }

  leave(interaction: LiveInteraction): void {
    this.#memory.recent.end(this.#key, interaction, this.#reply?.seq)
    this.session.running.delete(interaction)
    this.session.touch()
  }
}

const reasons: Readonly<Record<BrokenReply['status'], DiscardReason>> = {
  aborted: 'client_gone',
  truncated: 'truncated',
  failed: 'failed',
}

/** What it cost is not known: nobody said how much was used. */
function lostRecord(reply: BrokenReply, usage: Usage, name: Partial<ReplyName>): DiscardRecord {
  const { model, backend, tries, status } = reply
  const [ms, waitMs] = [Math.round(reply.ms), Math.round(reply.waitMs)]
  return { model, backend, usage, cost: null, tries, ms, waitMs, ...name, why: reasons[status] }
}
