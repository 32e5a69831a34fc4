import type { MessageNode } from '../../schema/index.ts'
import type { Journal } from '../../store/index.ts'
import type { SessionTally } from './session-tally.ts'
import type { SessionTree } from './session-tree.ts'

/** What the tally counts of a complete reply. */
export type ReplyFacts = Pick<MessageNode, 'call'> & { readonly lacksTokens: boolean }

interface UnheardReply {
  readonly reply: ReplyFacts
  /** How many clients are being told the reply again just now. */
  tellings: number
}

/**
 * Complete replies of one session that no client got, because the one that asked had just gone. They count as lost, and take
 * no reward, until a client gets one after all, or continues it: a stream may have been heard but for its end.
 */
export class UnheardReplies {
  readonly #journal: Journal
  readonly #session: string
  readonly #tree: SessionTree
  readonly #tally: SessionTally
  readonly #replies = new Map<number, UnheardReply>()
  /** One promise for each client that is being told a reply; no more than there are requests. */
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

  /** Adds a reply that is recorded as complete, unless a client continued it while it was on its way to the disk. */
  add(node: number, reply: ReplyFacts): void {
    if (this.#tree.isContinued(node)) return
    this.restore(node, reply)
    this.#tally.lose(reply)
    this.#record(node, false)
  }

  /** Adds a reply that is recorded as unheard. */
  restore(node: number, reply: ReplyFacts): void {
    this.#replies.set(node, { reply, tellings: 0 })
    this.#tree.setHeard(node, false)
  }

  /** Makes an unheard reply complete again; ignores other replies. */
  hear(node: number): void {
    if (this.#take(node)) this.#record(node, true)
  }

  /**
   * A client is to be told the reply again. From now on it is recorded as complete, because a client that gets it must find
   * it so. The returned function takes whether the client got it. Undefined if the reply is not unheard.
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

  /** Resolves when it is known of all tellings under way whether the client got the reply. */
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
