import { describe, expect, it } from 'vitest'
import { seededRandom } from '../kit/index.ts'
import { DurationHistogram } from './duration-histogram.ts'

describe('DurationHistogram', () => {
  it.each([1, 2, 3])('is within 2% of the exact quantile, from microseconds to hours (seed %i)', (seed) => {
    const random = seededRandom(seed)
    const histogram = new DurationHistogram()
    const values = Array.from({ length: 5000 }, () => 0.02 * 10 ** (random() * 8))
    for (const value of values) histogram.add(value)
    values.sort((a, b) => a - b)
    for (const quantile of [0, 0.01, 0.25, 0.5, 0.9, 0.95, 0.99, 1]) {
      const exact = values[Math.max(0, Math.ceil(quantile * values.length) - 1)] ?? 0
      expect(Math.abs(histogram.quantileMs(quantile) / exact - 1)).toBeLessThan(0.0201)
    }
  })

  it('is exact where all are the same, and never leaves the range seen', () => {
    const histogram = new DurationHistogram()
    for (let repetition = 0; repetition < 3; repetition += 1) histogram.add(1234)
    expect(histogram.quantileMs(0.5)).toBe(1234)
    expect(histogram.count).toBe(3)
  })

  it('takes nothing, zero, a clock set back and a very long time', () => {
    const histogram = new DurationHistogram()
    expect(histogram.quantileMs(0.5)).toBeNaN()
    histogram.add(0)
    histogram.add(-5)
    expect(histogram.quantileMs(0.95)).toBe(0)
    for (let repetition = 0; repetition < 10; repetition += 1) histogram.add(1e12)
    expect(histogram.quantileMs(0.95)).toBeGreaterThan(8e8)
  })
})
