import { inspect } from 'node:util'
import { MillraceError } from '../errors/index.ts'

/** Checks a number at run time: JavaScript has no types, and NaN is a number. A wrong one would be noticed late, or never. */
export function numberOption(name: string, value: number, least?: number): number {
  if (Number.isFinite(value) && value >= (least ?? -Infinity)) return value
  throw unfit(name, `a number${atLeast(least)}`, value)
}

export function wholeOption(name: string, value: number, least?: number): number {
  if (Number.isSafeInteger(value) && value >= (least ?? -Infinity)) return value
  throw unfit(name, `a whole number${atLeast(least)}`, value)
}

export function choiceOption<Choice extends string>(name: string, value: Choice, choices: readonly Choice[]): Choice {
  if (choices.includes(value)) return value
  throw unfit(name, `one of ${choices.join(', ')}`, value)
}

function atLeast(least: number | undefined): string {
  return least === undefined ? '' : ` of at least ${least}`
}

export function unfit(name: string, wanted: string, value: unknown): MillraceError {
  return new MillraceError('config_invalid', `${name} must be ${wanted}, not ${inspect(value)}`)
}
