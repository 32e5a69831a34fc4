/** Of so many digits at most, a whole number is written as it is. */
const exactBelow = 1e12

/** A sum of decimals as a person would write it: 0.7 + 0.2 + 0.1 is 1, not 0.9999999999999999, and passes for 1. */
export function roundedSum(sum: number): number {
  // Most sums of rewards are; writing a number down and reading it back takes a microsecond. Adding 0 makes -0 a 0.
  if (Number.isInteger(sum) && Math.abs(sum) < exactBelow) return sum + 0
  return Number(sum.toPrecision(12))
}
