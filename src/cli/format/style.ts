import { styleText } from 'node:util'
import type { Variables } from '../../kit/index.ts'

type Format = Parameters<typeof styleText>[0]

/** Colours by meaning; with colours off, every function returns the text unchanged. */
export interface Style {
  readonly enabled: boolean
  readonly bold: (text: string) => string
  readonly dim: (text: string) => string
  readonly good: (text: string) => string
  readonly warn: (text: string) => string
  readonly bad: (text: string) => string
  readonly accent: (text: string) => string
  readonly quiet: (text: string) => string
}

export function createStyle(enabled: boolean): Style {
  const as = (format: Format) => (text: string) =>
    enabled && text !== '' ? styleText(format, text, { validateStream: false }) : text
  return {
    enabled,
    bold: as('bold'),
    dim: as('dim'),
    good: as('green'),
    warn: as('yellow'),
    bad: as('red'),
    accent: as('cyan'),
    quiet: as('gray'),
  }
}

/** Whether to use colours: only on a terminal, unless NO_COLOR (no-color.org) or FORCE_COLOR say otherwise. */
export function wantsColor(isTTY: boolean, env: Variables): boolean {
  if (env['NO_COLOR']) return false
  const forced = env['FORCE_COLOR']
  if (forced !== undefined && forced !== '') return forced !== '0'
  return isTTY && env['TERM'] !== 'dumb'
}
