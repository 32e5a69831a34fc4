import { expect, test } from 'vitest'
import { Semaphore, seededRandom } from '../../kit/index.ts'
import { FakeClock } from '../../../test/support/inference/fake-clock.ts'
import { AdaptiveLimit } from './in-flight.ts'

function start(maxConcurrency: number, adaptive = true) {
  const changes: [from: number, to: number][] = []
  const permits = new Semaphore(maxConcurrency)
  const onChange = (from: number, to: number) => changes.push([from, to])
  const limit = new AdaptiveLimit({ maxConcurrency, adaptive, permits, onChange })
  return { limit, permits, changes }
}

const succeed = (limit: AdaptiveLimit, times: number): void => {
  for (let index = 0; index < times; index += 1) limit.onSuccess()
}

test('a rate limit error reduces the limit by a fifth, once per episode', async () => {
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
  const { limit, permits } = start(100)
  limit.onRateLimited(60_000)
  await clock.pass(30_000)
  limit.onRateLimited()
  expect(permits.limit).toBe(80)
  await clock.pass(30_001)
  limit.onRateLimited()
  expect(permits.limit).toBe(64)
})

test('the limit never falls below one', async () => {
  using clock = new FakeClock()
  const { limit, permits } = start(4)
  for (let index = 0; index < 20; index += 1) {
    limit.onRateLimited()
    await clock.pass(15_001)
  }
  expect(permits.limit).toBe(1)
})

test('successful rounds raise the limit again, never above its start', () => {
  using _clock = new FakeClock()
  const { limit, permits, changes } = start(20)
  limit.onRateLimited()
  succeed(limit, 15)
  expect(permits.limit).toBe(16)
  succeed(limit, 1)
  expect(permits.limit).toBe(17)
  succeed(limit, 10_000)
  expect(permits.limit).toBe(20)
  expect(changes.at(-1)).toEqual([19, 20])
})

test('random rate limit errors reduce the limit a little, a full backend strongly', async () => {
  using clock = new FakeClock()
  const settle = async (refused: number): Promise<number> => {
    const { limit, permits } = start(64)
    const random = seededRandom(1)
    for (let round = 0; round < 400; round += 1) {
      for (let index = 0; index < permits.limit; index += 1) {
        if (random() < refused) limit.onRateLimited()
        else limit.onSuccess()
      }
      await clock.pass(1000)
    }
    return permits.limit
  }
  expect(await settle(0.2)).toBeGreaterThan(16)
  expect(await settle(0.6)).toBeLessThan(4)
})

test('the limit is fixed if configured so', () => {
  const { limit, permits, changes } = start(10, false)
  limit.onRateLimited()
  expect(permits.limit).toBe(10)
  expect(changes).toEqual([])
})
