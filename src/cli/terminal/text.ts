import { stripVTControlCharacters, styleText } from 'node:util'
import stringWidth from 'string-width'
import wrapAnsi from 'wrap-ansi'
import type { Variables } from '../../kit/index.ts'
import { type Outcome, outcomes } from '../../schema/index.ts'

/** How many terminal columns the text takes; colours take none. */
export function textWidth(text: string): number {
  return stringWidth(text)
}

/** The text cut to at most `columns`, with `…` at the cut; colours that were on are turned off again. */
export function fitText(text: string, columns: number): string {
  if (stringWidth(text) <= columns) return text
  if (columns < 2) return '…'.slice(0, Math.max(0, columns))
  const [start = ''] = wrapAnsi(text, columns - 1, { hard: true, wordWrap: false, trim: false }).split('\n', 1)
  return `${start}…`
}

export function padText(text: string, columns: number, side: 'left' | 'right' = 'left'): string {
  const fitted = fitText(text, columns)
  const space = ' '.repeat(Math.max(0, columns - stringWidth(fitted)))
  return side === 'left' ? fitted + space : space + fitted
}

/** The text broken into lines of at most `columns`: between words, or within a word that is longer than a line. */
export function wrapText(text: string, columns: number): readonly string[] {
  return wrapAnsi(text, columns, { hard: true }).split('\n')
}

/** Makes text safe for a terminal: it must not move the cursor or change colours. Line breaks and tabs stay. */
export function printable(text: string): string {
  return (
    stripVTControlCharacters(text)
      .replaceAll('\r\n', '\n')
      // oxlint-disable-next-line no-control-regex
      .replaceAll(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, '�')
  )
}

export function printableLine(text: string): string {
  return printable(text).replaceAll(/\s+/g, ' ').trim()
}

type Format = Parameters<typeof styleText>[0]

/** Colours by meaning; with colours off, every function returns the text unchanged. */
export type Style = ReturnType<typeof createStyle>

export function createStyle(enabled: boolean) {
  const as = (format: Format) => (text: string) =>
    enabled && text !== '' ? styleText(format, text, { validateStream: false }) : text
  return {
    bold: as('bold'),
    dim: as('dim'),
    good: as('green'),
    warn: as('yellow'),
    bad: as('red'),
    accent: as('cyan'),
    quiet: as('gray'),
  }
}

/** The text in the colour of an outcome: good if it is scored, a warning if it is truncated, bad otherwise. */
export function inOutcomeColour(text: string, outcome: Outcome, style: Style): string {
  const { scored, truncated } = outcomes[outcome]
  if (!scored) return style.bad(text)
  return truncated ? style.warn(text) : style.good(text)
}

/** Whether to use colours: only on a terminal, unless NO_COLOR (no-color.org) or FORCE_COLOR say otherwise. */
export function wantsColor(isTTY: boolean, env: Variables): boolean {
  if (env['NO_COLOR']) return false
  const forced = env['FORCE_COLOR']
  if (forced !== undefined && forced !== '') return forced !== '0'
  return isTTY && env['TERM'] !== 'dumb'
}
