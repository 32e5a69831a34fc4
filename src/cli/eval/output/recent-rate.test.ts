import { describe, expect, it } from 'vitest'
import { sampleProgress } from '../../_testing/fake-evaluation.ts'
import { RecentRate } from './_recent-rate.ts'

/** What is shown at the end of a run that had ended so many at each second. */
function after(endedBySecond: readonly number[]) {
  const rate = new RecentRate()
  let shown = sampleProgress()
  for (const [second, ended] of endedBySecond.entries()) {
    shown = rate.apply(sampleProgress({ elapsedMs: second * 1000, ended, total: { count: 10_000, exact: true } }))
  }
  return shown
}

const seconds = (count: number, endedAt: (second: number) => number) =>
  Array.from({ length: count }, (_, second) => endedAt(second))

describe('RecentRate', () => {
  it('is the rate itself where that is steady', () => {
    expect(after(seconds(60, (second) => 5 * second))).toMatchObject({
      perSecond: expect.closeTo(5),
      etaMs: expect.closeTo(((10_000 - 295) / 5) * 1000),
    })
  })

  it('does not count what an earlier sitting had ended, nor the time before the first look', () => {
    expect(after(seconds(5, (second) => 9000 + 3 * second)).perSecond).toBeCloseTo(3)
  })

  it('forgets a standstill soon', () => {
    const stood = after(seconds(130, (second) => (second < 100 ? 0 : 10 * (second - 100))))
    expect(stood.perSecond).toBeGreaterThan(9)
  })

  it('falls back to the average while long rollouts run', () => {
    const shown = after(seconds(100, (second) => (second < 50 ? second : 50)))
    expect(shown.perSecond).toBeCloseTo(50 / 99)
    expect(after([0, 0, 0])).toMatchObject({ perSecond: 0, etaMs: undefined })
  })

  it('knows no time left without a total', () => {
    const rate = new RecentRate()
    for (const elapsedMs of [0, 1000]) {
      const shown = rate.apply(sampleProgress({ elapsedMs, ended: elapsedMs, total: undefined }))
      expect(shown.etaMs).toBeUndefined()
    }
  })
})
