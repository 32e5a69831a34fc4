import type { Message } from '../../schema/index.ts'
import { meaningOf, type Meaning } from './_meaning.ts'
import type { SaidMessage } from './_said-message.ts'
import type { TextAllowance } from './_text-allowance.ts'

/** What a conversation is known to begin with: so many messages, and the node of the last of them. */
export interface KnownBeginning<Node> {
  readonly count: number
  readonly node: Node
}

/**
 * What the last request of a session said and what it was answered, message by message, and the node of each: the next one
 * mostly begins with it.
 */
export class LastPath<Node> {
  readonly #allowance: TextAllowance
  readonly #meanings: Meaning[] = []
  readonly #nodes: Node[] = []
  #chars = 0

  constructor(allowance: TextAllowance) {
    this.#allowance = allowance
  }

  /** What it has taken of the allowance. */
  get chars(): number {
    return this.#chars
  }

  /** How many messages of the conversation are those of the path. */
  commonWith(messages: readonly Message[], before?: KnownBeginning<Node>): number {
    const length = Math.min(messages.length, this.#meanings.length)
    let common = before && this.nodeAfter(before.count) === before.node ? before.count : 0
    while (common < length && isSame(this.#meanings[common] as Meaning, meaningOf(messages[common] as Message))) {
      common += 1
    }
    return common
  }

  /** The node of the last of so many messages. */
  nodeAfter(count: number): Node | undefined {
    return this.#nodes[count - 1]
  }

  /** Goes on after so many messages with others; those that were there before are gone. */
  replaceAfter(count: number, messages: readonly SaidMessage[], nodes: readonly Node[]): void {
    this.#cut(count)
    for (let index = 0; index < messages.length; index += 1) {
      if (!this.#push(messages[index] as SaidMessage, nodes[index] as Node)) return
    }
  }

  /** Goes on with what was said after its end. Elsewhere nothing does: of a path that was not kept whole, for one. */
  extend(end: Node, message: SaidMessage, node: Node): void {
    if (this.#nodes.at(-1) === end) this.#push(message, node)
  }

  clear(): void {
    this.#cut(0)
  }

  /** Whether there was room for it. */
  #push({ meaning }: SaidMessage, node: Node): boolean {
    const chars = charsOf(meaning)
    if (!this.#allowance.take(chars)) return false
    this.#chars += chars
    this.#meanings.push(meaning)
    this.#nodes.push(node)
    return true
  }

  #cut(count: number): void {
    let chars = 0
    for (let index = count; index < this.#meanings.length; index += 1)
      chars += charsOf(this.#meanings[index] as Meaning)
    this.#allowance.giveBack(chars)
    this.#chars -= chars
    this.#meanings.length = count
    this.#nodes.length = count
  }
}

function isSame(one: Meaning, other: Meaning): boolean {
  return one.head === other.head && one.text === other.text
}

function charsOf({ head, text }: Meaning): number {
  return head.length + text.length
}
