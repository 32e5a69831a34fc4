import type { TokenSum } from '../token-sum.ts'
import type { SaidMessage } from './_said-message.ts'

type Digests = Pick<SaidMessage, 'digest' | 'looseDigest' | 'wholeDigest'>

/**
 * A message as a session's tree remembers it: its place, and the digests that tell it from others. Most messages are followed by
 * one other, which is held in a field; only a node with several has a table. Sessions are many, and what is in memory is looked
 * at by every full collection.
 */
export class TreeNode {
  readonly seq: number
  readonly hash: string
  /** Whether something was said after it. */
  isContinued = false
  /** Whether a client got the reply, as far as anybody knows. */
  isHeard = true
  /** The tokens of the last reply up to here that has them. Not known of nodes that were read back. */
  sum: TokenSum | undefined
  readonly #digest: string
  readonly #looseDigest: string | undefined
  readonly #wholeDigest: string
  #only: TreeNode | undefined
  /** The nodes that follow, by their digests, once there are several; those that say the same are in order of preference. */
  #table: Map<string, TreeNode[]> | undefined

  constructor(seq: number, hash: string, { digest, looseDigest, wholeDigest }: Digests) {
    this.seq = seq
    this.hash = hash
    this.#digest = digest
    this.#looseDigest = looseDigest
    this.#wholeDigest = wholeDigest
  }

  /** The nodes that follow and have this digest, loose or not, in order of preference. */
  following(digest: string): readonly TreeNode[] {
    if (this.#table) return this.#table.get(digest) ?? none
    const only = this.#only
    return only && (only.#digest === digest || only.#looseDigest === digest) ? [only] : none
  }

  /** Adds a node that follows. If others say the same, it is not added but these are returned, for the caller to place it there. */
  add(node: TreeNode): TreeNode[] | undefined {
    if (!this.#only && !this.#table) {
      this.#only = node
      return undefined
    }
    const table = this.#wholeTable()
    const twins = table.get(node.#looseDigest ?? node.#digest)
    if (!twins) node.#enterInto(table)
    return twins
  }

  /** Lets the nodes of a loose digest be found by the digest of another spelling. False if that is known to the node. */
  addSpelling(digest: string, looseDigest: string): boolean {
    if (this.following(digest).length > 0) return false
    const table = this.#wholeTable()
    const nodes = table.get(looseDigest)
    if (nodes) table.set(digest, nodes)
    return nodes !== undefined
  }

  /** How far a client's repetition is from what was said: 0 word for word, 1 without its reasoning, 2 in another spelling. */
  strangenessOf({ digest, wholeDigest }: Digests): number {
    if (this.#wholeDigest === wholeDigest) return 0
    return this.#digest === digest ? 1 : 2
  }

  /** Whether a message with this digest has the recorded spelling. */
  isSpelledLike({ digest }: Pick<Digests, 'digest'>): boolean {
    return this.#digest === digest
  }

  #wholeTable(): Map<string, TreeNode[]> {
    if (this.#table) return this.#table
    this.#table = new Map()
    if (this.#only) this.#only.#enterInto(this.#table)
    this.#only = undefined
    return this.#table
  }

  /** Enters this node as the only one that says what it does. */
  #enterInto(table: Map<string, TreeNode[]>): void {
    const nodes: TreeNode[] = [this]
    table.set(this.#digest, nodes)
    if (this.#looseDigest !== undefined) table.set(this.#looseDigest, nodes)
  }
}

const none: readonly TreeNode[] = []
