import { spoolDamages, type RunReader } from '../../store/index.ts'

/** The most losses that are listed. Each comes from a gateway that was killed, with damage on top. */
const maxTold = 20

/**
 * The losses of a run, in sentences: what a gateway wrote to its spool before it was killed and what the run lacks. Nobody
 * knows which sessions they belong to, except that those started before the loss: `since` is the start of the oldest session
 * shown.
 */
export function spoolLosses(reader: Pick<RunReader, 'events' | 'spoolProblem'>, since: number): string[] {
  const { spoolProblem } = reader
  return [
    ...(spoolProblem ? [`what the gateway wrote down last is missing: ${spoolProblem.rawMessage}`] : []),
    ...spoolDamages(reader, since).slice(-maxTold),
  ]
}
