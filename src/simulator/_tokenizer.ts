import { hash32 } from '../kit/index.ts'

/** Ordinary pieces of text have ids below this number, markers above. */
const vocabularySize = 128_000
const markerIds = 1024

const longestWord = 8
const longestNumber = 3

/**
 * Where the piece that starts at `start` ends. Pieces are up to eight letters or three digits, each with one space
 * before it if there is one, a run of white space, or a single other character; joined they are the text again.
 */
function pieceEnd(text: string, start: number): number {
  const { length } = text
  let index = start
  let kind = kindAt(text, index)
  if (text.charCodeAt(index) === 0x20 && index + 1 < length) {
    const next = kindAt(text, index + 1)
    if (next === 'letter' || next === 'digit') {
      kind = next
      index += 1
    }
  }
  if (kind === 'other') {
    const code = text.charCodeAt(index)
    // Both halves of a surrogate pair belong to one piece.
    return index + (code >= 0xd800 && code < 0xdc00 && index + 1 < length ? 2 : 1)
  }
  const limit = kind === 'letter' ? index + longestWord : kind === 'digit' ? index + longestNumber : length
  do index += 1
  while (index < length && index < limit && kindAt(text, index) === kind)
  return index
}

function kindAt(text: string, index: number): 'letter' | 'digit' | 'space' | 'other' {
  const code = text.charCodeAt(index)
  const lower = code | 0x20
  if (lower >= 0x61 && lower <= 0x7a) return 'letter'
  if (code >= 0x30 && code <= 0x39) return 'digit'
  return code === 0x20 || (code >= 0x09 && code <= 0x0d) ? 'space' : 'other'
}

export function countPieces(text: string): number {
  let count = 0
  for (let index = 0; index < text.length; index = pieceEnd(text, index)) count += 1
  return count
}

export function eachPiece(text: string, visit: (piece: string) => void): void {
  let index = 0
  while (index < text.length) {
    const end = pieceEnd(text, index)
    visit(text.slice(index, end))
    index = end
  }
}

export function pieceId(piece: string): number {
  return hash32(piece) % vocabularySize
}

export function markerId(marker: string): number {
  return vocabularySize + (hash32(marker) % markerIds)
}
