import { MillraceError } from '../../errors/index.ts'
import { nearestName, type Variables } from '../../kit/index.ts'
import { parseDurationMs } from '../terminal/format.ts'
import type { FlagSpec } from './flags.ts'

/** The value of a flag's text. `rawName` is the flag as it was typed: `-n`. `isInline`: it was written as `--flag=value`. */
export function flagValue(
  spec: FlagSpec,
  {
    rawName,
    text,
    isInline,
  }: { readonly rawName: string; readonly text: string | undefined; readonly isInline: boolean },
): unknown {
  if (spec.kind === 'switch') {
    if (text === undefined) return true
    throw usageError(`${rawName} takes no value; write it alone, or leave it out`)
  }
  if (text === undefined || text === '' || (!isInline && looksLikeFlag(text))) {
    throw usageError(`${rawName} needs a value: ${rawName} ${spec.value ?? '<value>'}`)
  }
  if (spec.kind === 'choice') return oneOfChoices(text, spec, rawName)
  if (spec.kind === 'duration') return durationMs(text, rawName)
  return spec.kind === 'number' || spec.kind === 'integer' ? numberInRange(text, spec, rawName) : text
}

export function looksLikeFlag(arg: string): boolean {
  return /^-(?![\d.]|$)/.test(arg)
}

export function usageError(message: string): MillraceError {
  return new MillraceError('usage', message)
}

function durationMs(text: string, rawName: string): number {
  const ms = parseDurationMs(text)
  if (ms !== undefined && ms > 0) return ms
  throw usageError(`${rawName} is a duration such as 90 (seconds), 90s, 5m, 1h30m or 30d, not ${text}`)
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

/** The key in the variable that the flag names, or in the usual variable. */
export function keyIn(
  flag: string,
  named: string | undefined,
  usual: string,
  { env }: { readonly env: Variables },
): string | undefined {
  return named === undefined ? env[usual] || undefined : namedKey(flag, named, env)
}

/** The key in a variable. Throws if it is not set: a missing key must not mean that none is needed, or that another will do. */
export function namedKey(flag: string, name: string, env: Variables): string {
  const key = env[name]
  if (key) return key
  throw usageError(`--${flag} names ${name}, which is not set: set it, or leave out the flag`)
}
