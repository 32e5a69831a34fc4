import type { Message } from '../schema/index.ts'
import { meaningOf, type Meaning } from './_meaning.ts'
import type { SaidMessage } from './_said-message.ts'

/**
 * How much text the last paths of all sessions may hold together. At the limit others are asked to give some back; if
 * nobody does, a path is not kept, which costs time only.
 */
export class TextAllowance {
  readonly #total: number
  readonly #reclaim: () => boolean
  #left: number

  /** `reclaim` makes somebody give back some, and says whether it did. */
  constructor(chars: number, reclaim: () => boolean) {
    this.#total = chars
    this.#left = chars
    this.#reclaim = reclaim
  }

  take(chars: number): boolean {
    if (chars > this.#total) return false
    while (chars > this.#left) if (!this.#reclaim()) return false
    this.#left -= chars
    return true
  }

  giveBack(chars: number): void {
    this.#left += chars
  }
}

/**
 * What the last request of a session said and what it was answered, message by message, and the node of each: the next one
 * mostly begins with it.
 */
export class LastPath<Node> {
  readonly #allowance: TextAllowance
  readonly #messages: Message[] = []
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
  commonWith(messages: readonly Message[]): number {
    const length = Math.min(messages.length, this.#meanings.length)
    let common = 0
    while (common < length && this.#isAt(common, messages[common] as Message)) common += 1
    return common
  }

  /** One that says the same takes the other's place: if it is not read anew, it is the very same next time. */
  #isAt(index: number, message: Message): boolean {
    if (this.#messages[index] === message) return true
    const meaning = meaningOf(message)
    if (!isSame(this.#meanings[index] as Meaning, meaning)) return false
    this.#messages[index] = message
    this.#meanings[index] = meaning
    return true
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
  #push({ message, meaning }: SaidMessage, node: Node): boolean {
    const chars = charsOf(meaning)
    if (!this.#allowance.take(chars)) return false
    this.#chars += chars
    this.#messages.push(message)
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
    this.#messages.length = count
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
