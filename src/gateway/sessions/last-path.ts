import type { Message } from '../../schema/index.ts'
import { meaningOf, type Meaning } from './_meaning.ts'
import type { SaidMessage } from './_said-message.ts'
import type { TextAllowance } from './_text-allowance.ts'

/** The known beginning of a conversation: so many messages, and the node of the last of them. */
export interface KnownBeginning<Node> {
  readonly count: number
  readonly node: Node
}

/** The messages of a session's last request and the reply to it, each with its node: the next request mostly begins with them. */
export class LastPath<Node> {
  readonly #allowance: TextAllowance
  readonly #meanings: Meaning[] = []
  readonly #nodes: Node[] = []
  #chars = 0

  constructor(allowance: TextAllowance) {
    this.#allowance = allowance
  }

  /** The characters taken from the allowance. */
  get chars(): number {
    return this.#chars
  }

  /**
   * How many messages at the start of the conversation are those of the path. `before`: the beginning that the conversation
   * shares with the body that is kept of it. What follows there, mostly a reply that its client sends back, is then held in
   * the conversation's own strings, which are kept with the body: otherwise it would be held twice. Without a kept body the
   * path holds on to the strings it has: new ones in their place, request after request, would all outlive young collections.
   */
  follow(messages: readonly Message[], before?: KnownBeginning<Node>): number {
    const length = Math.min(messages.length, this.#meanings.length)
    const isKept = before !== undefined && this.nodeAfter(before.count) === before.node
    let common = isKept ? before.count : 0
    for (; common < length; common += 1) {
      const meaning = meaningOf(messages[common] as Message)
      if (!isSame(this.#meanings[common] as Meaning, meaning)) break
      // The same text, so what was taken of the allowance stays right.
      if (isKept) this.#meanings[common] = meaning
    }
    return common
  }

  /** The node of the last of the first `count` messages. */
  nodeAfter(count: number): Node | undefined {
    return this.#nodes[count - 1]
  }

  /** Keeps the first `count` messages of the path and replaces the rest. */
  replaceAfter(count: number, messages: readonly SaidMessage[], nodes: readonly Node[]): void {
    this.#cut(count)
    for (let index = 0; index < messages.length; index += 1) {
      if (!this.#push(messages[index] as SaidMessage, nodes[index] as Node)) return
    }
  }

  /** Adds a message after the end of the path. Ignored if `end` is not its end: the path may not have been kept whole. */
  extend(end: Node, message: SaidMessage, node: Node): void {
    if (this.#nodes.at(-1) === end) this.#push(message, node)
  }

  clear(): void {
    this.#cut(0)
  }

  /** False if the allowance has no room for the message. */
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
