import { MillraceError } from '../errors/index.ts'

/** Throws unless the value is a whole number from `least` on. `what` names the option as its user wrote it. */
export function checkCount(what: string, value: number, least: number): void {
  if (Number.isSafeInteger(value) && value >= least) return
  throw new MillraceError('env_invalid', `${what} is ${value}: give a whole number from ${least} on`)
}
