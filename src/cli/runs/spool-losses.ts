import { spoolDamages, type RunReader } from '../../store/index.ts'

/** The most losses that are listed. Each comes from a gateway that was killed, with damage on top. */
const maxTold = 20

/**
 * The losses of a gateway's run, in sentences: what it wrote to its spool before it was killed and what the run lacks. Nobody
 * knows which sessions they belong to, except that those started before the loss: `since` is the start of the oldest session
 * shown.
 */
export function spoolLosses(reader: Pick<RunReader, 'events' | 'spoolProblem'>, since: number): string[] {
  return [...unreadSpool(reader), ...spoolDamages(reader, since).slice(-maxTold)]
}

/**
 * What a run of rollouts lacks as long as its spool cannot be brought in. Frames that are lost for good are no loss there: what
 * was in them runs again.
 */
export function unreadSpool({ spoolProblem }: Pick<RunReader, 'spoolProblem'>): string[] {
  return spoolProblem ? [`what was written down last is missing: ${spoolProblem.rawMessage}`] : []
}
