import { stripVTControlCharacters } from 'node:util'

// Characters that take two columns in a terminal: CJK, Hangul, full-width forms and emoji, roughly.
const wide =
  /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|[\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]/u
const combining = /^(?:\p{Mark}|[\u200b-\u200d])$/u
// A colour change: it takes no room and must survive a cut.
// oxlint-disable-next-line no-control-regex
const escapes = /\x1b\[[0-9;]*m/y

/** How many terminal columns the text takes; colours take none. */
export function textWidth(text: string): number {
  let width = 0
  for (const character of stripVTControlCharacters(text)) width += characterWidth(character)
  return width
}

/** The text cut to at most `columns`, with `…` at the cut; colours that were on are turned off again. */
export function fitText(text: string, columns: number): string {
  if (textWidth(text) <= columns) return text
  if (columns < 1) return ''
  let result = ''
  let width = 0
  let hasColour = false
  for (let index = 0; index < text.length;) {
    escapes.lastIndex = index
    const escape = escapes.exec(text)?.[0]
    if (escape) {
      result += escape
      hasColour = true
      index += escape.length
      continue
    }
    const character = String.fromCodePoint(text.codePointAt(index) ?? 0)
    width += characterWidth(character)
    if (width > columns - 1) break
    result += character
    index += character.length
  }
  return `${result}…${hasColour ? '\u001b[0m' : ''}`
}

/** The text padded to exactly `columns`, or cut if it is longer. */
export function padText(text: string, columns: number, side: 'left' | 'right' = 'left'): string {
  const fitted = fitText(text, columns)
  const space = ' '.repeat(Math.max(0, columns - textWidth(fitted)))
  return side === 'left' ? fitted + space : space + fitted
}

/** The text broken into lines of at most `columns`; a longer word gets a line of its own. */
export function wrapText(text: string, columns: number): readonly string[] {
  const lines: string[] = []
  for (const paragraph of text.split('\n')) {
    let line = ''
    for (const word of paragraph.split(' ')) {
      if (line === '') line = word
      else if (textWidth(line) + 1 + textWidth(word) <= columns) line += ` ${word}`
      else {
        lines.push(line)
        line = word
      }
    }
    lines.push(line)
  }
  return lines
}

function characterWidth(character: string): number {
  if (combining.test(character)) return 0
  return wide.test(character) ? 2 : 1
}
