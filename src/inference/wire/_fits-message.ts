import type { JsonObject } from '../../schema/index.ts'

/** The places of a message for what a model wrote, in the order in which they are written when the message is sent again. */
const places = ['thought', 'text', 'call'] as const

export type MessagePlace = (typeof places)[number]

/**
 * Whether our own message can hold all pieces of a reply, and their order. `placeOf` gives the place of a piece, or
 * undefined if a message has no place for it.
 */
export function fitsMessage(
  pieces: readonly JsonObject[],
  placeOf: (piece: JsonObject) => MessagePlace | undefined,
): boolean {
  let last = -1
  for (const piece of pieces) {
    const place = placeOf(piece)
    if (place === undefined) return false
    const order = places.indexOf(place)
    // A message may have several calls; a second thought or text would be merged with the first.
    if (order < last || (order === last && place !== 'call')) return false
    last = order
  }
  return true
}
