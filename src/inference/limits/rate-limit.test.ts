import { getEventListeners } from 'node:events'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { failureOf } from '../../../test/support/inference/code-of.ts'
import { FakeClock } from '../../../test/support/inference/fake-clock.ts'
import { RateLimit } from './rate-limit.ts'

const never = new AbortController().signal

test('requestsPerMinute allows a burst of ten seconds, then the rate, in order', async () => {
  using clock = new FakeClock()
  const limit = new RateLimit({ requestsPerMinute: 60, tokensPerMinute: undefined })
  const done: number[] = []
  const all = Array.from({ length: 30 }, (_, index) => limit.take(0, never).then(() => done.push(index)))
  await clock.pass(0)
  expect(done).toHaveLength(10)
  await clock.pass(5000)
  expect(done).toHaveLength(15)
  expect(limit.waiting).toBe(15)
  expect(clock.timers).toBe(1)
  await clock.pass(15_000)
  await Promise.all(all)
  expect(done).toEqual(done.toSorted((one, other) => one - other))
  expect(clock.timers).toBe(0)
})

test('the rate holds over an hour', async () => {
  using clock = new FakeClock()
  const limit = new RateLimit({ requestsPerMinute: 30, tokensPerMinute: 6000 })
  let taken = 0
  const worker = async (): Promise<void> => {
    while (taken < 3000) {
      await limit.take(100, never)
      taken += 1
    }
  }
  void Promise.all([worker(), worker(), worker()])
  await clock.pass(60 * 60_000)
  expect(taken).toBeGreaterThanOrEqual(1790)
  expect(taken).toBeLessThanOrEqual(1815)
  await clock.pass(24 * 60 * 60_000)
})

test('token estimates are corrected by the actual usage', async () => {
  using clock = new FakeClock()
  const limit = new RateLimit({ requestsPerMinute: undefined, tokensPerMinute: 6000 })
  expect(limit.tryTake(1000)).toBe(true)
  expect(limit.tryTake(1)).toBe(false)
  const waiting = limit.take(900, never)
  limit.settle(1000, 50)
  await waiting
  limit.settle(900, 1900)
  expect(limit.tryTake(1)).toBe(false)
  await clock.pass(9_700)
  expect(limit.tryTake(1)).toBe(true)
})

test('a request larger than the bucket starts when the bucket is full, and the next one waits', async () => {
  using clock = new FakeClock()
  const limit = new RateLimit({ requestsPerMinute: undefined, tokensPerMinute: 600 })
  expect(limit.tryTake(5000)).toBe(true)
  let isThrough = false
  void limit.take(10, never).then(() => (isThrough = true))
  await clock.pass(480_000)
  expect(isThrough).toBe(false)
  await clock.pass(20_000)
  expect(isThrough).toBe(true)
})

test('an aborted request makes room and leaves no timer or listener', async () => {
  using clock = new FakeClock()
  const limit = new RateLimit({ requestsPerMinute: undefined, tokensPerMinute: 600 })
  limit.tryTake(100)
  const controller = new AbortController()
  const large = failureOf(() => limit.take(100, controller.signal))
  const small = limit.take(1, never)
  controller.abort(new Error('enough'))
  expect(String(await large)).toContain('enough')
  await clock.pass(150)
  await small
  expect(getEventListeners(controller.signal, 'abort')).toHaveLength(0)
  expect(clock.timers).toBe(0)
})

test('a wait longer than a timer allows is not polled', async () => {
  // Node takes such a timer for one of a millisecond, and says so.
  const warnings: string[] = []
  const onWarning = ({ name }: Error): void => void warnings.push(name)
  process.on('warning', onWarning)
  const limit = new RateLimit({ requestsPerMinute: 1e-6, tokensPerMinute: undefined })
  expect(limit.tryTake(0)).toBe(true)
  const waiting = failureOf(() => limit.take(0, never))
  await nextTurn()
  limit.shut()
  await waiting
  process.off('warning', onWarning)
  expect(warnings).toEqual([])
})

test('shut() fails all waiting requests', async () => {
  using clock = new FakeClock()
  const limit = new RateLimit({ requestsPerMinute: 1, tokensPerMinute: undefined })
  limit.tryTake(0)
  const waiting = failureOf(() => limit.take(0, never))
  limit.shut()
  expect(await waiting).toMatchObject({ code: 'closed' })
  expect(clock.timers).toBe(0)
})

test('a worker gets its share of a divided rate', async () => {
  using clock = new FakeClock()
  const share = { leaseholders: 2, waiting: 0, startsEmpty: false }
  const limit = new RateLimit({ requestsPerMinute: 60, tokensPerMinute: undefined, share })
  let done = 0
  for (let count = 0; count < 100; count += 1) void limit.take(0, never).then(() => (done += 1))
  await clock.pass(0)
  expect([done, share.waiting]).toEqual([5, 95])
  await clock.pass(20_000)
  expect(done).toBeGreaterThanOrEqual(14)
  expect(done).toBeLessThanOrEqual(15)
  share.leaseholders = 1
  await clock.pass(100_000)
  expect(done).toBe(100)
})

test('a replacement worker starts without a burst', async () => {
  using clock = new FakeClock()
  const share = { leaseholders: 1, waiting: 0, startsEmpty: true }
  const limit = new RateLimit({ requestsPerMinute: 60, tokensPerMinute: undefined, share })
  expect(limit.tryTake(0)).toBe(false)
  await clock.pass(1000)
  expect(limit.tryTake(0)).toBe(true)
})
