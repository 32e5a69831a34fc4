import type { DialectRequest } from '../../dialects/index.ts'
import { comma, nonSpace } from '../../kit/index.ts'
import type { Message } from '../../schema/index.ts'
import { findMessages, type MessagesPlace } from './_messages-place.ts'
import type { TextAllowance } from './_text-allowance.ts'

/** A body that continues the last one. */
export interface ContinuedBody<Node> {
  /** The body's JSON without the messages that are known. */
  readonly text: string
  /** The known messages, and the node of the last of them. */
  readonly known: readonly Message[]
  readonly node: Node
  /** How many bytes the body shares with the last one. */
  readonly knownBytes: number
  /** Where all messages of the body stand. */
  readonly place: MessagesPlace
}

/** The messages of a body. */
interface Said<Node> {
  readonly messages: readonly Message[]
  /** The node of the last message. */
  readonly node: Node
}

export interface ReadBody<Node> {
  readonly request: DialectRequest
  /** The node of the last message. */
  readonly node: Node
  /** Set if the body continues the last one. */
  readonly continued: ContinuedBody<Node> | undefined
}

/** For shorter bodies, parsing takes no longer than comparing. */
const worthKeepingBytes = 4 * 1024

/** Room is made for more than is needed, so that a long conversation is copied a few times in all, and not every turn. */
const growth = 1.5

/** A client whose bodies do not continue the last one so often in a row will do so again: its bodies are no longer kept. */
const maxMisses = 3

const nothing = Buffer.alloc(0)

/**
 * The last body of a session, and its messages as they were read. A client sends its whole conversation each time, and writes
 * it as before: the part that is the same is compared, at the speed of memory, and only what follows is parsed.
 */
export class LastBody<Node> {
  readonly #allowance: TextAllowance
  /** One buffer for the whole conversation, which grows with it: buffers that come and go make V8 collect garbage. */
  #memory = nothing
  #length = 0
  #said: Said<Node> | undefined
  /** Where the messages stand. Worked out on first use: many conversations are not continued. */
  #place: MessagesPlace | undefined
  #misses = 0
  #taken = 0

  constructor(allowance: TextAllowance) {
    this.#allowance = allowance
  }

  /** Undefined for a body that does not continue the last one, or in which `findMessages` finds no messages. */
  continuedBy(body: Buffer): ContinuedBody<Node> | undefined {
    if (!this.#said || isShort(body)) return undefined
    const continued = this.#continuation(body, this.#said)
    this.#misses = continued ? 0 : this.#misses + 1
    return continued
  }

  /** Makes this the last body, if that is worth it and there is room, and returns whether it is. */
  keep(body: Buffer, { request, node, continued }: ReadBody<Node>): boolean {
    // A short body between long ones leaves the last one in place.
    if (isShort(body)) return false
    const { messages, untranslatable } = request
    // Problems of a message are reported each time, so its body has to be read whole each time.
    const isPlain = !untranslatable.some((name) => name.startsWith('messages['))
    if (!isPlain || this.#misses >= maxMisses || !this.#makeRoom(body.length)) {
      this.clear()
      return false
    }
    const from = continued?.knownBytes ?? 0
    body.copy(this.#memory, from, from)
    this.#length = body.length
    this.#said = { messages, node }
    this.#place = continued?.place
    return true
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

  /** Makes room for the body, and for about as much text in its messages. A buffer 8 times as large as needed is replaced. */
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
