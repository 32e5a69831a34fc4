/**
 * For a call that came without an id, by its place among those of its reply. A client that is told of such a reply sends it
 * back without one, too: read from there, it must be the same.
 */
export function madeUpId(index: number): string {
  return `call_${index}`
}
