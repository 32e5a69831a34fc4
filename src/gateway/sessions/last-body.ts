import type { DialectRequest } from '../../dialects/index.ts'
import { comma, nonSpace } from '../../kit/index.ts'
import type { Message } from '../../schema/index.ts'
import { findMessages, type MessagesPlace } from './_messages-place.ts'
import type { TextAllowance } from './_text-allowance.ts'

/** A body that goes on from the last one. */
export interface ContinuedBody<Node> {
  /** Its JSON without the messages that are known. */
  readonly text: string
  /** Those, and the node of the last of them. */
  readonly known: readonly Message[]
  readonly node: Node
  /** How many of its bytes the last one had, too. */
  readonly knownBytes: number
  /** Where all of its messages stand. */
  readonly place: MessagesPlace
}

/** What was said in a body. */
interface Said<Node> {
  readonly messages: readonly Message[]
  /** Of the last of them. */
  readonly node: Node
}

export interface ReadBody<Node> {
  readonly request: DialectRequest
  /** Of its last message. */
  readonly node: Node
  /** If it goes on from the last one. */
  readonly continued: ContinuedBody<Node> | undefined
}

/** Below it parsing takes no longer than finding out. */
const worthKeepingBytes = 4 * 1024

/** More room than is needed, whenever there is none left: a long conversation is then copied a few times in all, not every turn. */
const growth = 1.5

/** A client that begins anew so often in a row, because it rewrites what it said or holds two conversations, will do so again. */
const maxMisses = 3

const nothing = Buffer.alloc(0)

/**
 * The last body of a session, and what its messages read as. A client sends its whole conversation each time, and writes it
 * as it did before: what is the same is compared, at the speed of memory, and only what follows it is parsed.
 */
export class LastBody<Node> {
  readonly #allowance: TextAllowance
  /** It stays for the whole conversation and grows with it: memory outside of the heap that comes and goes makes V8 collect. */
  #memory = nothing
  #length = 0
  #said: Said<Node> | undefined
  /** Where the messages stand. Worked out when somebody asks: many conversations are not gone on with. */
  #place: MessagesPlace | undefined
  #misses = 0
  #taken = 0

  constructor(allowance: TextAllowance) {
    this.#allowance = allowance
  }

  /** Undefined for a body that begins in another way, or that `findMessages` cannot tell. */
  continuedBy(body: Buffer): ContinuedBody<Node> | undefined {
    if (!this.#said || isShort(body)) return undefined
    const continued = this.#continuation(body, this.#said)
    this.#misses = continued ? 0 : this.#misses + 1
    return continued
  }

  /** It is the last one from now on, if that is worth it and there is room. */
  keep(body: Buffer, { request, node, continued }: ReadBody<Node>): void {
    // A short one between long ones leaves those as they are.
    if (isShort(body)) return
    const { messages, untranslatable } = request
    // What is wrong with a message is said again each time.
    const isPlain = !untranslatable.some((name) => name.startsWith('messages['))
    if (!isPlain || this.#misses === maxMisses || !this.#makeRoom(body.length)) {
      this.clear()
      return
    }
    const from = continued?.knownBytes ?? 0
    body.copy(this.#memory, from, from)
    this.#length = body.length
    this.#said = { messages, node }
    this.#place = continued?.place
  }

  clear(): void {
    this.#allowance.giveBack(this.#taken)
    this.#taken = 0
    this.#memory = nothing
    this.#length = 0
    this.#said = undefined
    this.#place = undefined
  }

  #continuation(body: Buffer, { messages, node }: Said<Node>): ContinuedBody<Node> | undefined {
    const known = (this.#place ??= findMessages(this.#memory.subarray(0, this.#length)))
    if (!known || !this.#isBeginningOf(body, known.end)) return undefined
    const place = findMessages(body, known)
    if (!place) return undefined
    const after = nonSpace(body, known.end)
    const rest = body[after] === comma ? after + 1 : after
    const text = body.toString('utf8', 0, known.start) + body.toString('utf8', rest)
    return { text, known: messages, node, knownBytes: known.end, place }
  }

  /** For the bytes, and for about as much text in the messages. One long body does not keep its room for many short ones. */
  #makeRoom(bytes: number): boolean {
    const { length } = this.#memory
    if (bytes <= length && bytes * 8 > length) return true
    const size = Math.ceil(bytes * growth)
    this.#allowance.giveBack(this.#taken)
    this.#taken = 0
    if (!this.#allowance.take(2 * size)) return false
    this.#taken = 2 * size
    const memory = Buffer.allocUnsafeSlow(size)
    this.#memory.copy(memory, 0, 0, Math.min(this.#length, size))
    this.#memory = memory
    return true
  }

  #isBeginningOf(body: Buffer, length: number): boolean {
    return body.length >= length && body.compare(this.#memory, 0, length, 0, length) === 0
  }
}

function isShort(body: Buffer): boolean {
  return body.length < worthKeepingBytes
}
