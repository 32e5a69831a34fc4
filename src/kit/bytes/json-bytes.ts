/**
 * Functions that walk over JSON in its bytes. Each takes the place where something begins and returns the place after it.
 * They refuse what `JSON.parse` refuses, so that a part that was walked over may be left out of the text that `JSON.parse`
 * gets.
 */

const space = 0x20
export const quote = 0x22
const plus = 0x2b
export const comma = 0x2c
const minus = 0x2d
const point = 0x2e
const zero = 0x30
const nine = 0x39
const colon = 0x3a
export const openBracket = 0x5b
export const backslash = 0x5c
export const closeBracket = 0x5d
export const openBrace = 0x7b
export const closeBrace = 0x7d

/** The deepest nesting that is walked over: nothing worth a walk is deeper. */
const maxDepth = 1024

/** Thrown where the walk cannot go on. `JSON.parse` then says what is wrong, if anything is. */
export const notWalkable = new SyntaxError('no JSON, or too deep')

/** The brackets that `valueEnd` has yet to see closed, the innermost last. One array is enough: a walk is never interrupted. */
const dueBrackets = new Uint8Array(maxDepth + 1)

export function nonSpace(bytes: Uint8Array, at: number): number {
  // Nearly all JSON is written without spaces. This check before the call halves the time of a walk.
  return (bytes[at] as number) > space ? at : spaceEnd(bytes, at)
}

export function spaceEnd(bytes: Uint8Array, start: number): number {
  const { length } = bytes
  for (let at = start; at < length; at += 1) {
    const byte = bytes[at] as number
    if (byte > space) return at
    if (byte !== space && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) throw notWalkable
  }
  return length
}

export function valueEnd(bytes: Uint8Array, start: number): number {
  let depth = 0
  let at = start
  for (;;) {
    at = nonSpace(bytes, at)
    const first = bytes[at] as number
    let isInside = false
    if (first === quote) {
      at = stringEnd(bytes, at)
    } else if (first === openBracket || first === openBrace) {
      // In ASCII a bracket that closes is two after the one that opens.
      const close = first + 2
      at = nonSpace(bytes, at + 1)
      if (bytes[at] === close) {
        at += 1
      } else {
        if (depth === maxDepth) throw notWalkable
        depth += 1
        dueBrackets[depth] = close
        isInside = true
      }
    } else {
      at = first <= nine ? numberEnd(bytes, at) : literalEnd(bytes, at)
    }
    // A value has ended, and so has every list and object whose last value it was.
    while (!isInside) {
      if (depth === 0) return at
      at = nonSpace(bytes, at)
      const next = bytes[at]
      at += 1
      if (next === comma) isInside = true
      else if (next === dueBrackets[depth]) depth -= 1
      else throw notWalkable
    }
    if (dueBrackets[depth] === closeBrace) at = keyEnd(bytes, nonSpace(bytes, at))
  }
}

/** Visits the members of the object that begins here. `visit` gets the places of key and value, and returns the value's end. */
export function membersEnd(
  bytes: Uint8Array,
  start: number,
  visit: (keyAt: number, valueAt: number) => number,
): number {
  let at = nonSpace(bytes, start + 1)
  if (bytes[at] === closeBrace) return at + 1
  for (;;) {
    const keyAt = nonSpace(bytes, at)
    at = nonSpace(bytes, visit(keyAt, nonSpace(bytes, keyEnd(bytes, keyAt))))
    const byte = bytes[at]
    at += 1
    if (byte === closeBrace) return at
    if (byte !== comma) throw notWalkable
  }
}

/** Visits the elements of the list that begins here. `visit` gets where an element begins, and returns where it ends. */
export function elementsEnd(bytes: Uint8Array, start: number, visit: (at: number, index: number) => number): number {
  let at = nonSpace(bytes, start + 1)
  if (bytes[at] === closeBracket) return at + 1
  for (let index = 0; ; index += 1) {
    at = nonSpace(bytes, visit(nonSpace(bytes, at), index))
    const byte = bytes[at]
    at += 1
    if (byte === closeBracket) return at
    if (byte !== comma) throw notWalkable
  }
}

/** Whether the key that begins here is `key`. A key that is written with escapes is not recognised. */
export function isKey(bytes: Uint8Array, at: number, key: Uint8Array): boolean {
  const { length } = key
  for (let index = 0; index < length; index += 1) if (bytes[at + index] !== key[index]) return false
  return true
}

/** Throws for a key with escapes. It may spell a key that `isKey` looks for, and would then count instead of that one. */
export function requirePlainKey(bytes: Uint8Array, keyAt: number, valueAt: number): void {
  for (let at = keyAt; at < valueAt; at += 1) if (bytes[at] === backslash) throw notWalkable
}

export function keyBytes(name: string): Uint8Array {
  return Buffer.from(JSON.stringify(name))
}

/** The place after a key and its colon. */
export function keyEnd(bytes: Uint8Array, start: number): number {
  if (bytes[start] !== quote) throw notWalkable
  const at = nonSpace(bytes, stringEnd(bytes, start))
  if (bytes[at] !== colon) throw notWalkable
  return at + 1
}

function stringEnd(bytes: Uint8Array, start: number): number {
  const { length } = bytes
  let at = start + 1
  while (at < length) {
    const byte = bytes[at] as number
    at += 1
    if (byte === quote) return at
    if (byte === backslash) at = escapeEnd(bytes, at)
    else if (byte < space) break
  }
  throw notWalkable
}

function escapeEnd(bytes: Uint8Array, at: number): number {
  const kind = bytes[at] ?? 0
  if (plainEscapes.has(kind)) return at + 1
  if (kind !== 0x75) throw notWalkable
  for (let index = at + 1; index <= at + 4; index += 1) {
    const byte = bytes[index] ?? 0
    const lower = byte | 0x20
    if (!isDigit(byte) && (lower < 0x61 || lower > 0x66)) throw notWalkable
  }
  return at + 5
}

function numberEnd(bytes: Uint8Array, start: number): number {
  const first = bytes[start] === minus ? start + 1 : start
  let at = digitsEnd(bytes, first)
  if (bytes[first] === zero && at > first + 1) throw notWalkable
  if (bytes[at] === point) at = digitsEnd(bytes, at + 1)
  if (bytes[at] === 0x65 || bytes[at] === 0x45) {
    const sign = bytes[at + 1]
    at = digitsEnd(bytes, sign === plus || sign === minus ? at + 2 : at + 1)
  }
  return at
}

function digitsEnd(bytes: Uint8Array, start: number): number {
  const { length } = bytes
  let at = start
  while (at < length) {
    const byte = bytes[at] as number
    if (byte < zero || byte > nine) break
    at += 1
  }
  if (at === start) throw notWalkable
  return at
}

export function isDigit(byte: number | undefined): boolean {
  return byte !== undefined && byte >= zero && byte <= nine
}

function literalEnd(bytes: Uint8Array, at: number): number {
  const first = bytes[at]
  const word = first === words.null[0] ? words.null : first === words.true[0] ? words.true : words.false
  if (!isKey(bytes, at, word)) throw notWalkable
  return at + word.length
}

const plainEscapes: ReadonlySet<number> = new Set(Buffer.from('"\\/bfnrt'))
const words = { true: Buffer.from('true'), false: Buffer.from('false'), null: Buffer.from('null') }
