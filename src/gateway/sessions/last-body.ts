import {
  backslash,
  closeBrace,
  closeBracket,
  comma,
  isKey,
  keyBytes,
  keyEnd,
  nonSpace,
  notWalkable,
  openBrace,
  openBracket,
  spaceEnd,
  valueEnd,
} from '../../kit/index.ts'
import type { DialectRequest } from '../../apis/index.ts'
import type { Message } from '../../schema/index.ts'

export interface ContinuedBody<End> {
  readonly text: string
  readonly known: readonly Message[]
  readonly end: End
  readonly knownBytes: number
  readonly messagesAt: ByteRange
}

interface LastRequest<End> {
  readonly messages: readonly Message[]
  readonly end: End
}

interface ReadBody<End> {
  readonly request: DialectRequest
  readonly end: End
  readonly continued: ContinuedBody<End> | undefined
}

/** How much memory the last bodies of all sessions may take together. At the limit a body is not kept, which costs time only. */
export class BodyMemoryBudget {
  #left: number

  constructor(bytes: number) {
    this.#left = bytes
  }

  take(bytes: number): boolean {
    if (bytes > this.#left) return false
    this.#left -= bytes
    return true
  }

  giveBack(bytes: number): void {
    this.#left += bytes
  }
}

/** For shorter bodies, parsing takes no longer than comparing. */
const minKeptBytes = 4 * 1024

/** Room is made for more than is needed, so that a long conversation is copied a few times in all, and not every turn. */
const growth = 1.5

/** A client whose bodies do not continue the last one so often in a row will do so again: its bodies are no longer kept. */
const maxMisses = 3

const nothing = Buffer.alloc(0)

/**
 * The last body of a session in Chat, and its messages as they were read. A client sends its whole conversation each time, and writes
 * it as before: the part that is the same is compared, at the speed of memory, and only what follows is parsed.
 */
export class LastBody<End> {
  readonly #allowance: BodyMemoryBudget
  /** One buffer for the whole conversation, which grows with it: buffers that come and go make V8 collect garbage. */
  #memory = nothing
  #length = 0
  #last: LastRequest<End> | undefined
  /** Where the messages stand. Worked out on first use: many conversations are not continued. */
  #messagesAt: ByteRange | undefined
  #misses = 0
  #taken = 0

  constructor(allowance: BodyMemoryBudget) {
    this.#allowance = allowance
  }

  /** Undefined for a body that does not continue the last one, or in which `findMessages` finds no messages. */
  continuedBy(body: Buffer): ContinuedBody<End> | undefined {
    if (!this.#last || isShort(body)) return undefined
    const continued = this.#continuation(body, this.#last)
    this.#misses = continued ? 0 : this.#misses + 1
    return continued
  }

  /** Makes this the last body, if that is worth it and there is room, and returns whether it is. */
  keep(body: Buffer, { request, end, continued }: ReadBody<End>): boolean {
    // A short body between long ones leaves the last one in place.
    if (isShort(body)) return false
    const { messages, unsupported } = request
    // Problems of a message are reported each time, so its body has to be read whole each time.
    const isPlain = !unsupported.some((name) => name.startsWith('messages['))
    if (!isPlain || this.#misses >= maxMisses || !this.#makeRoom(body.length)) {
      this.clear()
      return false
    }
    const from = continued?.knownBytes ?? 0
    body.copy(this.#memory, from, from)
    this.#length = body.length
    this.#last = { messages, end }
    this.#messagesAt = continued?.messagesAt
    return true
  }

  clear(): void {
    this.#allowance.giveBack(this.#taken)
    this.#taken = 0
    this.#memory = nothing
    this.#length = 0
    this.#last = undefined
    this.#messagesAt = undefined
  }

  #continuation(body: Buffer, { messages, end }: LastRequest<End>): ContinuedBody<End> | undefined {
    const known = (this.#messagesAt ??= findMessages(this.#memory.subarray(0, this.#length)))
    if (!known || !this.#isBeginningOf(body, known.end)) return undefined
    const messagesAt = findMessages(body, known)
    if (!messagesAt) return undefined
    const after = nonSpace(body, known.end)
    const rest = body[after] === comma ? after + 1 : after
    const text = body.toString('utf8', 0, known.start) + body.toString('utf8', rest)
    return { text, known: messages, end, knownBytes: known.end, messagesAt }
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
  return body.length < minKeptBytes
}

interface ByteRange {
  readonly start: number
  readonly end: number
}

const messagesKey = keyBytes('messages')

/** Finds the messages in a body; undefined if it is not plain enough. `known`: those of a body with the same beginning. */
function findMessages(bytes: Uint8Array, known?: ByteRange): ByteRange | undefined {
  try {
    const start = known?.start ?? listStart(bytes)
    let end = known?.end ?? valueEnd(bytes, start)
    let at = nonSpace(bytes, end)
    while (bytes[at] === comma) {
      end = valueEnd(bytes, at + 1)
      at = nonSpace(bytes, end)
    }
    if (bytes[at] !== closeBracket) return undefined
    return endsWithoutList(bytes, at + 1) ? { start, end } : undefined
  } catch (error) {
    if (error !== notWalkable) throw error
    return undefined
  }
}

function listStart(bytes: Uint8Array): number {
  let at = nonSpace(bytes, 0)
  if (bytes[at] !== openBrace) throw notWalkable
  do {
    at = nonSpace(bytes, at + 1)
    const isFound = isKey(bytes, at, messagesKey)
    at = nonSpace(bytes, keyEnd(bytes, at))
    if (isFound && bytes[at] === openBracket) return at + 1
    at = nonSpace(bytes, valueEnd(bytes, at))
  } while (bytes[at] === comma)
  throw notWalkable
}

/** Whether the rest of the body has no second `messages`: of two, the last counts. A key with escapes may spell the same. */
function endsWithoutList(bytes: Uint8Array, from: number): boolean {
  let at = nonSpace(bytes, from)
  while (bytes[at] === comma) {
    const keyAt = nonSpace(bytes, at + 1)
    const end = keyEnd(bytes, keyAt)
    if (isKey(bytes, keyAt, messagesKey) || bytes.subarray(keyAt, end).includes(backslash)) return false
    at = nonSpace(bytes, valueEnd(bytes, end))
  }
  return bytes[at] === closeBrace && spaceEnd(bytes, at + 1) === bytes.length
}
