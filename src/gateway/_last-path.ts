import type { Message } from '../schema/index.ts'
import { meaningOf } from './_meaning.ts'

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

/** What the last request of a session said, message by message, and the node of each: the next one mostly begins with it. */
export class LastPath<Node> {
  readonly #allowance: TextAllowance
  readonly #meanings: string[] = []
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
    while (common < length && this.#meanings[common] === meaningOf(messages[common] as Message)) common += 1
    return common
  }

  /** The node of the last of so many messages. */
  nodeAfter(count: number): Node | undefined {
    return this.#nodes[count - 1]
  }

  /** Goes on after so many messages with others; those that were there before are gone. */
  replaceAfter(count: number, messages: readonly Message[], nodes: readonly Node[]): void {
    this.#cut(count)
    for (let index = 0; index < messages.length; index += 1) {
      const meaning = meaningOf(messages[index] as Message)
      if (!this.#allowance.take(meaning.length)) return
      this.#chars += meaning.length
      this.#meanings.push(meaning)
      this.#nodes.push(nodes[index] as Node)
    }
  }

  clear(): void {
    this.#cut(0)
  }

  #cut(count: number): void {
    let chars = 0
    for (let index = count; index < this.#meanings.length; index += 1) chars += (this.#meanings[index] as string).length
    this.#allowance.giveBack(chars)
    this.#chars -= chars
    this.#meanings.length = count
    this.#nodes.length = count
  }
}
