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
  /** The places of messages that the client wrote in another spelling than the recorded one, in order. */
  readonly #respelled: number[] = []
  #chars = 0

  constructor(allowance: TextAllowance) {
    this.#allowance = allowance
  }

  /** The characters taken from the allowance. */
  get chars(): number {
    return this.#chars
  }

  /** How many messages at the start of the conversation are those of the path. */
  commonWith(messages: readonly Message[], before?: KnownBeginning<Node>): number {
    const length = Math.min(messages.length, this.#meanings.length)
    let common = before && this.nodeAfter(before.count) === before.node ? before.count : 0
    while (common < length && isSame(this.#meanings[common] as Meaning, meaningOf(messages[common] as Message))) {
      common += 1
    }
    return common
  }

  /**
   * Holds the messages of the path, from the given one on, in the strings of this conversation, which says the same and is kept
   * elsewhere: a reply that its client sends back would otherwise be held twice.
   */
  shareTextWith(messages: readonly Message[], from: number): void {
    // The same text, so what was taken of the allowance stays right.
    const end = Math.min(messages.length, this.#meanings.length)
    for (let index = from; index < end; index += 1) this.#meanings[index] = meaningOf(messages[index] as Message)
  }

  /** The node of the last of the first `count` messages. */
  nodeAfter(count: number): Node | undefined {
    return this.#nodes[count - 1]
  }

  /** The places among the first `count` messages where the client's spelling is not the recorded one. */
  respelledWithin(count: number): readonly number[] {
    return this.#respelled.filter((index) => index < count)
  }

  /** Keeps the first `count` messages of the path and replaces the rest. `respelled`: places of the whole path. */
  replaceAfter(
    count: number,
    messages: readonly SaidMessage[],
    { nodes, respelled }: { readonly nodes: readonly Node[]; readonly respelled: ReadonlyMap<number, Node> },
  ): void {
    this.#cut(count)
    for (let index = 0; index < messages.length; index += 1) {
      if (!this.#push(messages[index] as SaidMessage, nodes[index] as Node)) return
      if (respelled.has(count + index)) this.#respelled.push(count + index)
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
    while ((this.#respelled.at(-1) ?? -1) >= count) this.#respelled.pop()
  }
}

function isSame(one: Meaning, other: Meaning): boolean {
  return one.head === other.head && one.text === other.text
}

function charsOf({ head, text }: Meaning): number {
  return head.length + text.length
}
