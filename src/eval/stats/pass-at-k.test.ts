import { describe, expect, it } from 'vitest'
import { passAtK, passHatK, reportedKs } from './pass-at-k.ts'

/** Draws every subset of `k` out of `rollouts` and looks. */
function byEnumeration(rollouts: number, passed: number, k: number): { at: number; hat: number } {
  let subsets = 0
  let some = 0
  let all = 0
  for (let mask = 0; mask < 1 << rollouts; mask += 1) {
    let size = 0
    let passing = 0
    for (let bit = 0; bit < rollouts; bit += 1) {
      if (!(mask & (1 << bit))) continue
      size += 1
      if (bit < passed) passing += 1
    }
    if (size !== k) continue
    subsets += 1
    if (passing > 0) some += 1
    if (passing === k) all += 1
  }
  return { at: some / subsets, hat: all / subsets }
}

describe('pass@k and pass^k', () => {
  it('agree with enumerating every subset', () => {
    for (let rollouts = 1; rollouts <= 9; rollouts += 1) {
      for (let passed = 0; passed <= rollouts; passed += 1) {
        for (let k = 1; k <= rollouts; k += 1) {
          const expected = byEnumeration(rollouts, passed, k)
          expect(passAtK(rollouts, passed, k)).toBeCloseTo(expected.at, 12)
          expect(passHatK(rollouts, passed, k)).toBeCloseTo(expected.hat, 12)
        }
      }
    }
  })

  it('stay between 0 and 1 and meet at k = 1, for thousands of rollouts', () => {
    for (const passed of [0, 1, 17, 2048, 4095, 4096]) {
      expect(passAtK(4096, passed, 1)).toBeCloseTo(passHatK(4096, passed, 1), 12)
      let earlierAt = 0
      let earlierHat = 1
      for (const k of reportedKs(4096)) {
        const [at, hat] = [passAtK(4096, passed, k), passHatK(4096, passed, k)]
        expect(at).toBeGreaterThanOrEqual(earlierAt)
        expect(at).toBeLessThanOrEqual(1)
        expect(hat).toBeLessThanOrEqual(earlierHat)
        expect(hat).toBeGreaterThanOrEqual(0)
        earlierAt = at
        earlierHat = hat
      }
    }
  })

  it('are undefined for more draws than rollouts', () => {
    expect(passAtK(3, 1, 4)).toBeNaN()
    expect(passHatK(3, 3, 4)).toBeNaN()
  })
})

describe('reportedKs', () => {
  it.each([
    [1, [1]],
    [2, [1, 2]],
    [3, [1, 2, 3]],
    [7, [1, 2, 4, 7]],
    [8, [1, 2, 4, 8]],
  ])('%i', (limit, expected) => {
    expect(reportedKs(limit)).toEqual(expected)
  })
})
