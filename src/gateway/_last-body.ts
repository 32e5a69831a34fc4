import type { DialectRequest } from '../dialects/index.ts'
import { comma, nonSpace } from '../kit/index.ts'
import type { Message } from '../schema/index.ts'
import type { TextAllowance } from './_last-path.ts'
import { findMessages, type MessagesPlace } from './_messages-place.ts'

/** A body that goes on from the last one. */
export interface ContinuedBody {
  /** Its JSON without the messages that are known. */
  readonly text: string
  /** Those. */
  readonly known: readonly Message[]
  /** How many of its bytes the last one had, too. */
  readonly knownBytes: number
  /** Where all of its messages stand. */
  readonly place: MessagesPlace
}

/** More room than is needed, whenever there is none left: what is there is then copied a few times in all, not every turn. */
const growth = 1.5

const nothing = Buffer.alloc(0)

/**
 * The last body of a session, and what its messages read as. A client sends its whole conversation each time, and writes it
 * as it did before: what is the same is compared, at the speed of memory, and only what follows it is parsed.
 */
export class LastBody {
  readonly #allowance: TextAllowance
  /** It stays for the whole conversation and grows with it: memory outside of the heap that comes and goes makes V8 collect. */
  #memory = nothing
  #length = 0
  #messages: readonly Message[] = []
  /** Where they stand. Worked out when somebody asks: most conversations that are not gone on with are short. */
  #place: MessagesPlace | undefined

  constructor(allowance: TextAllowance) {
    this.#allowance = allowance
  }

  /** What it has taken of the allowance. */
  get chars(): number {
    return this.#memory.length
  }

  /** Undefined for a body that begins in another way, or that `findMessages` cannot tell. */
  continuedBy(body: Buffer): ContinuedBody | undefined {
    // Before anything is looked for: a client may well have begun another conversation.
    if (this.#length === 0 || !this.#isBeginningOf(body, this.#length >> 1)) return undefined
    const known = (this.#place ??= findMessages(this.#memory.subarray(0, this.#length)))
    if (!known || !this.#isBeginningOf(body, known.end)) return undefined
    const place = findMessages(body, known)
    if (!place) return undefined
    const after = nonSpace(body, known.end)
    const rest = body[after] === comma ? after + 1 : after
    const text = body.toString('utf8', 0, known.start) + body.toString('utf8', rest)
    return { text, known: this.#messages, knownBytes: known.end, place }
  }

  /** It is the last one from now on, if there is room for it. */
  keep(body: Buffer, { messages, untranslatable }: DialectRequest, continued: ContinuedBody | undefined): void {
    // What is wrong with a message is said again each time.
    if (untranslatable.some((name) => name.startsWith('messages[')) || !this.#makeRoom(body.length)) {
      this.clear()
      return
    }
    const from = continued?.known === this.#messages ? continued.knownBytes : 0
    body.copy(this.#memory, from, from)
    this.#length = body.length
    this.#messages = messages
    this.#place = continued?.place
  }

  clear(): void {
    this.#allowance.giveBack(this.chars)
    this.#memory = nothing
    this.#length = 0
    this.#messages = []
    this.#place = undefined
  }

  #makeRoom(bytes: number): boolean {
    if (bytes <= this.#memory.length) return true
    const size = Math.ceil(bytes * growth)
    if (!this.#allowance.take(size - this.#memory.length)) return false
    const memory = Buffer.allocUnsafeSlow(size)
    this.#memory.copy(memory, 0, 0, this.#length)
    this.#memory = memory
    return true
  }

  #isBeginningOf(body: Buffer, length: number): boolean {
    return body.length >= length && body.compare(this.#memory, 0, length, 0, length) === 0
  }
}
