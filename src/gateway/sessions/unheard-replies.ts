import type { MessageNode } from '../../schema/index.ts'
import type { Journal } from '../../store/index.ts'
import type { SessionTally } from './session-tally.ts'
import type { SessionTree } from './session-tree.ts'

/** What a session counts of a complete reply. */
export type ReplyFacts = Pick<MessageNode, 'call'> & { readonly lacksTokens: boolean }

/**
 * Complete replies of one session that nobody got, because whoever asked had just gone. They count as lost, and no reward
 * is theirs, until somebody gets one after all, or goes on from it: a stream may have been heard but for its end.
 */
export class UnheardReplies {
  readonly #journal: Journal
  readonly #session: string
  readonly #tree: SessionTree
  readonly #tally: SessionTally
  readonly #replies = new Map<number, ReplyFacts>()

  constructor(parts: { journal: Journal; session: string; tree: SessionTree; tally: SessionTally }) {
    this.#journal = parts.journal
    this.#session = parts.session
    this.#tree = parts.tree
    this.#tally = parts.tally
  }

  has(node: number): boolean {
    return this.#replies.has(node)
  }

  /** One that is recorded, and counted, as complete. It stays so if somebody went on from it while it was on its way to the disk. */
  add(node: number, reply: ReplyFacts): void {
    if (this.#tree.isContinued(node)) return
    this.#replies.set(node, reply)
    this.#tally.lose(reply)
    this.#journal.append({ kind: 'heard', session: this.#session, node, isHeard: false })
  }

  /** One that is recorded as such. */
  restore(node: number, reply: ReplyFacts): void {
    this.#replies.set(node, reply)
  }

  /** It is complete again, if it was one of these. Says whether it was. */
  hear(node: number): ReplyFacts | undefined {
    const reply = this.#replies.get(node)
    if (!reply) return undefined
    this.#replies.delete(node)
    this.#tally.regain(reply)
    this.#journal.append({ kind: 'heard', session: this.#session, node, isHeard: true })
    return reply
  }
}
