import { randomBytes } from 'node:crypto'

/** In microseconds, as far as they tell ids of one millisecond apart. Ten digits to the base of 36 last until 2085. */
let lastStamp = 0

/**
 * A name that nobody can guess, after those made before it in the order of texts. Sessions that are in use together then lie
 * together in the journal's index: with 64 at once a commit writes 4 of its pages, where names in no order took 65.
 */
export function orderedId(kind: 'grp' | 'ses'): string {
  lastStamp = Math.max(lastStamp + 1, Date.now() * 1000)
  return `${kind}_${lastStamp.toString(36)}${randomBytes(9).toString('base64url')}`
}
