import { MillraceError } from '../../errors/index.ts'
import { nearestName } from '../../kit/index.ts'
import type { FlagKind, FlagSpec } from './command.ts'
import { parseDurationMs } from '../format/duration.ts'

export interface GivenFlag {
  /** The flag as it was typed: `-n` or `--attempts`. */
  readonly rawName: string
  readonly text: string | undefined
  /** Whether it was written as `--flag=value`. */
  readonly isInline: boolean
}

/** The value of a flag's text, by the kind of the flag. A mistake gives one sentence that says what was expected. */
export function flagValue(spec: FlagSpec, given: GivenFlag): unknown {
  const { rawName, text, isInline } = given
  if (spec.kind === 'switch') {
    if (text === undefined) return true
    throw usageError(`${rawName} takes no value; write it alone, or leave it out`)
  }
  if (spec.kind === 'optional') return text ?? ''
  if (text === undefined || text === '' || (!isInline && looksLikeFlag(text))) {
    throw usageError(`${rawName} needs a value: ${rawName} ${spec.value ?? '<value>'}`)
  }
  return parsers[spec.kind](text, spec, rawName)
}

/** Whether a word is a dash followed by anything but a number. */
export function looksLikeFlag(word: string): boolean {
  return /^-(?![\d.]|$)/.test(word)
}

export function usageError(message: string): MillraceError {
  return new MillraceError('usage', message)
}

type Parser = (text: string, spec: FlagSpec, rawName: string) => unknown

const parsers: Readonly<Record<Exclude<FlagKind, 'switch' | 'optional'>, Parser>> = {
  text: (text) => text,
  texts: (text) => text,
  choice: oneOfChoices,
  duration: (text, _spec, rawName) => {
    const ms = parseDurationMs(text)
    if (ms !== undefined && ms > 0) return ms
    throw usageError(`${rawName} is a duration such as 90 (seconds), 90s, 5m, 1h30m or 30d, not ${text}`)
  },
  number: numberInRange,
  integer: numberInRange,
}

function oneOfChoices(text: string, { choices = [] }: FlagSpec, rawName: string): string {
  if (choices.includes(text)) return text
  const near = nearestName(text, choices)
  throw usageError(
    `${rawName} is one of ${choices.join(', ')}, not ${text}${near === undefined ? '' : `; did you mean ${near}?`}`,
  )
}

function numberInRange(text: string, spec: FlagSpec, rawName: string): number {
  const { kind, min = 0, max = Number.POSITIVE_INFINITY } = spec
  const value = text.trim() === '' ? Number.NaN : Number(text.replaceAll('_', ''))
  const isRight = kind === 'integer' ? Number.isSafeInteger(value) : Number.isFinite(value)
  if (isRight && value >= min && value <= max) return value
  const noun = kind === 'integer' ? 'a whole number' : 'a number'
  const least = min > Number.NEGATIVE_INFINITY ? ` of at least ${min}` : ''
  const most = max < Number.POSITIVE_INFINITY ? ` and at most ${max}` : ''
  throw usageError(`${rawName} is ${noun}${least}${most}, not ${text}`)
}
