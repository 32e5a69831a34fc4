import type { JsonObject } from '../../schema/index.ts'

/** The places of a message for what a model wrote, in the order in which it is written from there again. */
const places = ['thought', 'text', 'call'] as const

export type MessagePlace = (typeof places)[number]

/**
 * Whether a message of ours holds all that the pieces of a reply say, and their order. `placeOf` says where; undefined for
 * what has no place in it.
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
    // Of calls there may be several; a second thought, or a second text, would become one with the first.
    if (order < last || (order === last && place !== 'call')) return false
    last = order
  }
  return true
}
