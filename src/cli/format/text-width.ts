import { stripVTControlCharacters } from 'node:util'

// Characters of two columns: East Asian Width W and F (Unicode 16), of which the emoji have a property of their own.
const wide = new RegExp(
  '[\\u1100-\\u115f\\u2329\\u232a\\u2e80-\\u303e\\u3041-\\u3247\\u3250-\\ua4cf\\ua960-\\ua97c\\uac00-\\ud7a3\\uf900-\\ufaff' +
    '\\ufe10-\\ufe19\\ufe30-\\ufe6b\\uff01-\\uff60\\uffe0-\\uffe6\\u{16fe0}-\\u{18dff}\\u{1aff0}-\\u{1b2fb}\\u{1d300}-\\u{1d376}' +
    '\\u{1f200}-\\u{1f265}\\u{20000}-\\u{3fffd}\\p{Emoji_Presentation}]',
  'u',
)
const invisible = /^(?:\p{Mark}|\p{Default_Ignorable_Code_Point})$/u
/** A character that is drawn as an emoji because a variation selector asks for it, such as ❤️ or 1️⃣. */
const asEmoji = /\p{Emoji}\ufe0f/u
const printableAscii = /^[ -~]*$/
// A colour change: it takes no room and must survive a cut.
// oxlint-disable-next-line no-control-regex
const escapes = /(\x1b\[[0-9;]*m)/
const graphemes = new Intl.Segmenter('en', { granularity: 'grapheme' })

/** How many terminal columns the text takes; colours take none. */
export function textWidth(text: string): number {
  const shown = stripVTControlCharacters(text)
  if (printableAscii.test(shown)) return shown.length
  let width = 0
  for (const { segment } of graphemes.segment(shown)) width += graphemeWidth(segment)
  return width
}

/** The text cut to at most `columns`, with `…` at the cut; colours that were on are turned off again. */
export function fitText(text: string, columns: number): string {
  if (textWidth(text) <= columns) return text
  if (columns < 1) return ''
  let result = ''
  let width = 0
  let hasColour = false
  // Every second part is a colour change.
  for (const [index, part] of text.split(escapes).entries()) {
    if (index % 2 === 1) {
      result += part
      hasColour = true
      continue
    }
    for (const { segment } of graphemes.segment(part)) {
      width += graphemeWidth(segment)
      if (width > columns - 1) return `${result}…${hasColour ? '\u001b[0m' : ''}`
      result += segment
    }
  }
  return result
}

/** The text padded to exactly `columns`, or cut if it is longer. */
export function padText(text: string, columns: number, side: 'left' | 'right' = 'left'): string {
  const fitted = fitText(text, columns)
  const space = ' '.repeat(Math.max(0, columns - textWidth(fitted)))
  return side === 'left' ? fitted + space : space + fitted
}

/**
 * The text broken into lines of at most `columns`. Text in wide characters, which has no spaces, is broken anywhere; another word
 * that is too long gets a line of its own.
 */
export function wrapText(text: string, columns: number): readonly string[] {
  const lines: string[] = []
  for (const paragraph of text.split('\n')) {
    let line = ''
    for (const word of paragraph.split(' ')) {
      if (line !== '' && textWidth(line) + 1 + textWidth(word) <= columns) {
        line += ` ${word}`
        continue
      }
      if (line !== '') lines.push(line)
      const pieces = wide.test(word) ? brokenWord(word, columns) : [word]
      lines.push(...pieces.slice(0, -1))
      line = pieces.at(-1) ?? ''
    }
    lines.push(line)
  }
  return lines
}

function brokenWord(word: string, columns: number): readonly string[] {
  const pieces: string[] = []
  let piece = ''
  let width = 0
  for (const { segment } of graphemes.segment(word)) {
    const more = graphemeWidth(segment)
    if (piece !== '' && width + more > columns) {
      pieces.push(piece)
      piece = ''
      width = 0
    }
    piece += segment
    width += more
  }
  return [...pieces, piece]
}

/** The columns of one user-perceived character: a family of emoji or a flag is one, whatever it is made of. */
function graphemeWidth(grapheme: string): number {
  if (asEmoji.test(grapheme)) return 2
  let width = 0
  for (const character of grapheme) width = Math.max(width, characterWidth(character))
  return width
}

function characterWidth(character: string): number {
  if (invisible.test(character)) return 0
  return wide.test(character) ? 2 : 1
}
