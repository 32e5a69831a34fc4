/**
 * The chance that at least one of `k` rollouts of a task passes, estimated without bias from `passed` of `rollouts`: 1 - C(n-c,
 * k) / C(n, k), as a product of factors between 0 and 1, so that nothing overflows.
 */
export function passAtK(rollouts: number, passed: number, k: number): number {
  return 1 - drawnOnlyFrom(rollouts - passed, rollouts, k)
}

/** pass^k: the chance that all of `k` rollouts of a task pass, C(c, k) / C(n, k). */
export function passHatK(rollouts: number, passed: number, k: number): number {
  return drawnOnlyFrom(passed, rollouts, k)
}

/** The values of k that are reported: powers of two, and the number of attempts, which most ask for. */
export function reportedKs(attempts: number): readonly number[] {
  const told: number[] = []
  for (let k = 1; k < attempts; k *= 2) told.push(k)
  return [...told, attempts]
}

/** The chance that `k` items drawn from `all` without replacement all belong to a given `part` of them; NaN for k > all. */
function drawnOnlyFrom(part: number, all: number, k: number): number {
  if (k > all) return Number.NaN
  let chance = 1
  for (let drawn = 0; drawn < k; drawn += 1) {
    if (part - drawn <= 0) return 0
    chance *= (part - drawn) / (all - drawn)
  }
  return chance
}
