import { spoolDamages, type RunReader } from '../../store/index.ts'

/** Each is the end of a gateway that was killed, and damage on top of that. */
const maxTold = 20

/**
 * What a gateway wrote down before it was killed and its run does not have, in sentences. Nobody knows whose it was, other than
 * that it was of no session which started after that: `since` is the start of the oldest that matters.
 */
export function spoolLosses(reader: Pick<RunReader, 'events' | 'spoolProblem'>, since: number): string[] {
  const { spoolProblem } = reader
  return [
    ...(spoolProblem ? [`what the gateway wrote down last is missing: ${spoolProblem.rawMessage}`] : []),
    ...spoolDamages(reader, since).slice(-maxTold),
  ]
}
