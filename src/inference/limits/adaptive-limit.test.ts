import { expect, test } from 'vitest'
import { Semaphore, seededRandom } from '../../kit/index.ts'
import { FakeClock } from '../_testing/fake-clock.ts'
import { AdaptiveLimit } from './adaptive-limit.ts'
import { bytesOfCells, mapCells, type LimitCells } from './shared-limits-cells.ts'

function start(maxConcurrency: number, adaptive = true) {
  const changes: [from: number, to: number][] = []
  const limit = new AdaptiveLimit({ maxConcurrency, adaptive, onChange: (from, to) => changes.push([from, to]) })
  return { limit, changes }
}

const succeed = (limit: AdaptiveLimit, times: number): void => {
  for (let index = 0; index < times; index += 1) limit.onSuccess()
}

test('a refusal cuts by a fifth, once per episode', async () => {
  using clock = new FakeClock()
  const { limit, changes } = start(100)
  for (let index = 0; index < 50; index += 1) limit.onRateLimited()
  expect(changes).toEqual([[100, 80]])
  await clock.pass(15_001)
  limit.onRateLimited()
  expect(changes).toEqual([
    [100, 80],
    [80, 64],
  ])
})

test('an episode lasts as long as the server asks', async () => {
  using clock = new FakeClock()
  const { limit } = start(100)
  limit.onRateLimited(60_000)
  await clock.pass(30_000)
  limit.onRateLimited()
  expect(limit.limit).toBe(80)
  await clock.pass(30_001)
  limit.onRateLimited()
  expect(limit.limit).toBe(64)
})

test('it never goes below one', async () => {
  using clock = new FakeClock()
  const { limit } = start(4)
  for (let index = 0; index < 20; index += 1) {
    limit.onRateLimited()
    await clock.pass(15_001)
  }
  expect(limit.limit).toBe(1)
})

test('rounds of replies bring it back, never above its start', () => {
  using _clock = new FakeClock()
  const { limit, changes } = start(20)
  limit.onRateLimited()
  succeed(limit, 15)
  expect(limit.limit).toBe(16)
  succeed(limit, 1)
  expect(limit.limit).toBe(17)
  succeed(limit, 10_000)
  expect(limit.limit).toBe(20)
  expect(changes.at(-1)).toEqual([19, 20])
})

test('refusals at random do not push it to nothing; a full backend does push it down', async () => {
  using clock = new FakeClock()
  const settle = async (refused: number): Promise<number> => {
    const { limit } = start(64)
    const random = seededRandom(1)
    for (let round = 0; round < 400; round += 1) {
      for (let index = 0; index < limit.limit; index += 1) {
        if (random() < refused) limit.onRateLimited()
        else limit.onSuccess()
      }
      await clock.pass(1000)
    }
    return limit.limit
  }
  expect(await settle(0.2)).toBeGreaterThan(16)
  expect(await settle(0.6)).toBeLessThan(4)
})

test('fixed when told so', () => {
  const { limit, changes } = start(10, false)
  limit.onRateLimited()
  expect(limit.limit).toBe(10)
  expect(changes).toEqual([])
})

test('workers learn together: one cut per episode, reported once, and all replies bring it back', () => {
  using _clock = new FakeClock()
  const shape = { name: 'm', maxConcurrency: 20, adaptive: true, backends: 0 }
  const memory = new SharedArrayBuffer(bytesOfCells([shape], 2))
  const { limits } = mapCells([shape], 2, memory)
  const cells = limits[0] as LimitCells
  const changes: number[] = []
  const [one, other] = [0, 1].map((place) => {
    const permits = new Semaphore({ cells: cells.permits, place, wake: () => undefined })
    if (place === 0) permits.resize(20)
    const onChange = (_from: number, to: number) => changes.push(to)
    return new AdaptiveLimit({ maxConcurrency: 20, adaptive: true, onChange, limits: { permits, cells } })
  }) as [AdaptiveLimit, AdaptiveLimit]
  one.onRateLimited()
  other.onRateLimited()
  expect([one.limit, other.limit]).toEqual([16, 16])
  succeed(one, 10)
  succeed(other, 6)
  expect(one.limit).toBe(17)
  expect(changes).toEqual([16, 17])
})
