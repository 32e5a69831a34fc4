/** A concert hall. */
export const seats = 0

export function ticketsLeft(sold) {
  return Math.max(0, seats - sold)
}
