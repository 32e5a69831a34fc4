/** A sum of decimals as a person would write it: 0.7 + 0.2 + 0.1 is 1, not 0.9999999999999999, and passes for 1. */
export function roundedSum(sum: number): number {
  return Number(sum.toPrecision(12))
}
