import type { Token, TokenPart } from './_token-stream.ts'

/** Neighbouring tokens of one part of a reply. Markers go with the text after them; they add ids but no text. */
export interface TokenGroup {
  readonly part: TokenPart
  readonly call: number
  readonly text: string
  /** The group has the tokens from `from` up to, not including, `to`. */
  readonly from: number
  readonly to: number
}

/** Splits a reply into the pieces of a stream, of at most `size` tokens of text; a tool's name is never split. */
export function groupTokens(tokens: readonly Token[], size: number): TokenGroup[] {
  const groups: TokenGroup[] = []
  let from = 0
  let index = 0
  while (index < tokens.length) {
    while (tokens[index]?.part === 'marker') index += 1
    const first = tokens[index]
    if (!first) break
    let text = ''
    const limit = first.part === 'name' ? Number.POSITIVE_INFINITY : index + size
    for (; index < limit; index += 1) {
      const token = tokens[index]
      if (!token || token.part !== first.part || token.call !== first.call) break
      text += token.piece
    }
    groups.push({ part: first.part, call: first.call, text, from, to: index })
    from = index
  }
  if (from < tokens.length) groups.push({ part: 'marker', call: -1, text: '', from, to: tokens.length })
  return groups
}
