import { runFiles } from './run-folder.ts'
import type { StoredEvent } from './stored-run.ts'

/** The name of the event for a spool in which some frames could not be read, though later ones could. */
export const spoolDamaged = 'spool-damaged'

/** Counts of frames; each frame holds what was written down in one turn of an event loop. */
export type SpoolDamage = {
  readonly lost: number
  readonly takenIn: number
}

/** A `RunReader`. */
interface Events {
  events(name: string): Iterable<StoredEvent>
}

/** What was lost from spools since a time, in sentences, the oldest first. */
export function spoolDamages(reader: Events, since: number): string[] {
  const events = Array.from(reader.events(spoolDamaged)).filter(({ at }) => at >= since)
  return events.map(({ data }) => textOf(data as SpoolDamage))
}

function textOf({ lost, takenIn }: SpoolDamage): string {
  return (
    `${runFiles.spool} was damaged: ${lost} of the ${lost + takenIn} frames that were left there are lost. ` +
    'A session that lost messages among others is refused and exported as damaged; one that lost its last ones ends before them.'
  )
}
