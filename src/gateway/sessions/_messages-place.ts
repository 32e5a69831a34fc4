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

/** Where a body's messages stand in its bytes: the first after the bracket of their list, and the end of the last. */
export interface MessagesPlace {
  readonly start: number
  readonly end: number
}

const messagesKey = keyBytes('messages')

/**
 * Finds the messages in a body. If `known` is given, the body has the same bytes up to its end, and only the rest is read.
 * Undefined for a body that is not that plain, or not valid: what is wrong with it, if anything, is not said.
 */
export function findMessages(bytes: Uint8Array, known?: MessagesPlace): MessagesPlace | undefined {
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
