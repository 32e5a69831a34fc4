/** The event of a spool of which some frames could not be read, though later ones could. */
export const spoolDamaged = 'spool-damaged'

/** In frames: each is what a gateway wrote down in one turn of its event loop. */
export type SpoolDamage = {
  readonly lost: number
  readonly takenIn: number
}
