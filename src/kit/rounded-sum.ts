/** Whole numbers below this are exact with the 12 digits that are kept. */
const exactBelow = 1e12

/** A sum of decimals as a person would write it: 0.7 + 0.2 + 0.1 is 1, not 0.9999999999999999, and passes for 1. */
export function roundedSum(sum: number): number {
  // Most sums of rewards are whole, and writing a number and reading it back takes a microsecond. Adding 0 turns -0 into 0.
  if (Number.isInteger(sum) && Math.abs(sum) < exactBelow) return sum + 0
  return Number(sum.toPrecision(12))
}
