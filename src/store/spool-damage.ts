import { runFiles } from './run-folder.ts'

/** The event of a spool of which some frames could not be read, though later ones could. */
export const spoolDamaged = 'spool-damaged'

/** In frames: each is what a gateway wrote down in one turn of its event loop. */
export type SpoolDamage = {
  readonly lost: number
  readonly takenIn: number
}

export function spoolDamageText({ lost, takenIn }: SpoolDamage): string {
  return (
    `${runFiles.spool} was damaged: ${lost} of the ${lost + takenIn} frames that were left there are lost. ` +
    'A session that lost messages among others is refused and exported as damaged; one that lost its last ones ends before them.'
  )
}
