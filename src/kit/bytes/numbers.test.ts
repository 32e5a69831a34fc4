import { describe, expect, test } from 'vitest'
import { RingQueue } from '../async/queues.ts'
import { backoffMs } from '../async/lifecycle.ts'
import { hash32, roundedSum, seededRandom } from './numbers.ts'

describe('seeded randomness', () => {
  test('gives the same numbers for the same seed, and others for other parts', () => {
    expect(hash32('run', 7)).toBe(hash32('run', 7))
    expect(hash32('ab', 'c')).not.toBe(hash32('a', 'bc'))
    const once = seededRandom(5)
    const again = seededRandom(5)
    expect([once(), once(), once()]).toEqual([again(), again(), again()])
  })

  test('is spread evenly over [0, 1)', () => {
    const random = seededRandom(1)
    const buckets = Array.from({ length: 10 }, () => 0)
    for (let draw = 0; draw < 10_000; draw += 1) {
      const bucket = Math.floor(random() * 10)
      buckets[bucket] = (buckets[bucket] ?? 0) + 1
    }
    for (const count of buckets) expect(count).toBeGreaterThan(850)
  })
})

test('backoff grows to its ceiling, with jitter between half and all of the step', () => {
  const backoff = { firstMs: 100, factor: 2, maxMs: 1000 }
  expect(backoffMs(backoff, 1, () => 0)).toBe(50)
  expect(backoffMs(backoff, 3, () => 1)).toBe(400)
  expect(backoffMs(backoff, 30, () => 1)).toBe(1000)
})

test('a ring keeps its order when it grows and wraps around', () => {
  const ring = new RingQueue<number>()
  const model: number[] = []
  const random = seededRandom(3)
  for (let step = 0; step < 5_000; step += 1) {
    if (random() < 0.55) {
      ring.push(step)
      model.push(step)
    } else {
      expect(ring.shift()).toBe(model.shift())
    }
    expect(ring.size).toBe(model.length)
  }
})

test.each([
  [0.7 + 0.2 + 0.1, 1],
  [3, 3],
  [-0, 0],
  [-2.5, -2.5],
  [1_234_567_890_123, 1_234_567_890_120],
])('%d is rounded to %d', (sum, written) => {
  expect(roundedSum(sum)).toBe(written)
})
