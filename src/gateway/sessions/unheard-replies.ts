import type { MessageNode } from '../../schema/index.ts'
import type { Journal } from '../../store/index.ts'
import type { SessionTally } from './session-tally.ts'
import type { SessionTree } from './session-tree.ts'

/** What a session counts of a complete reply. */
export type ReplyFacts = Pick<MessageNode, 'call'> & { readonly lacksTokens: boolean }

interface UnheardReply {
  readonly reply: ReplyFacts
  /** How many are being told it again just now. */
  tellings: number
}

/**
 * Complete replies of one session that nobody got, because whoever asked had just gone. They count as lost, and no reward
 * is theirs, until somebody gets one after all, or goes on from it: a stream may have been heard but for its end.
 */
export class UnheardReplies {
  readonly #journal: Journal
  readonly #session: string
  readonly #tree: SessionTree
  readonly #tally: SessionTally
  readonly #replies = new Map<number, UnheardReply>()
  /** Of those who are being told one, no more than there are requests. */
  readonly #tellings = new Set<Promise<void>>()

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
    this.restore(node, reply)
    this.#tally.lose(reply)
    this.#record(node, false)
  }

  /** One that is recorded as such. */
  restore(node: number, reply: ReplyFacts): void {
    this.#replies.set(node, { reply, tellings: 0 })
    this.#tree.setHeard(node, false)
  }

  /** It is complete again, if it was one of these. */
  hear(node: number): void {
    if (this.#take(node)) this.#record(node, true)
  }

  /**
   * Somebody is to be told it again: from now on it is recorded as complete, because whoever gets it must find it so. What is
   * returned is to be called with whether it was got. Undefined if it is none of these.
   */
  tell(node: number): ((wasHeard: boolean) => void) | undefined {
    const unheard = this.#replies.get(node)
    if (!unheard) return undefined
    unheard.tellings += 1
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#tellings.add(promise)
    this.#record(node, true)
    return (wasHeard) => {
      unheard.tellings -= 1
      if (wasHeard) this.#take(node)
      else if (unheard.tellings === 0 && this.has(node)) this.#record(node, false)
      this.#tellings.delete(promise)
      resolve()
    }
  }

  /** Resolves when it is known whether those got it who are being told one now. */
  async allTold(): Promise<void> {
    await Promise.all(this.#tellings)
  }

  #take(node: number): boolean {
    const unheard = this.#replies.get(node)
    if (!unheard) return false
    this.#replies.delete(node)
    this.#tree.setHeard(node, true)
    this.#tally.regain(unheard.reply)
    return true
  }

  #record(node: number, isHeard: boolean): void {
    this.#journal.append({ kind: 'heard', session: this.#session, node, isHeard })
  }
}
