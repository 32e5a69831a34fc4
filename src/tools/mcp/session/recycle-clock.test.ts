import { beforeEach, expect, test, vi } from 'vitest'
import { RecycleClock } from './recycle-clock.ts'

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
  return () => vi.useRealTimers()
})

test('a connection is idle some time after its last call, and never during a call', () => {
  const due: string[] = []
  let inFlight = 1
  const clock = new RecycleClock(
    { idleMs: 100 },
    () => inFlight,
    (why) => due.push(why),
  )
  vi.advanceTimersByTime(250)
  inFlight = 0
  clock.used()
  vi.advanceTimersByTime(99)
  expect(due).toEqual([])
  vi.advanceTimersByTime(1)
  expect(due).toEqual(['idle'])
  expect(vi.getTimerCount()).toBe(0)
})

test('a connection also reaches its maximum age under load, and this is reported once', () => {
  const due: string[] = []
  let inFlight = 1
  const _clock = new RecycleClock(
    { idleMs: 100, maxLifetimeMs: 150 },
    () => inFlight,
    (why) => due.push(why),
  )
  vi.advanceTimersByTime(150)
  inFlight = 0
  vi.advanceTimersByTime(1_000)
  expect(due).toEqual(['lifetime'])
})

test('a stopped clock and a clock without limits report nothing', () => {
  const onDue = (): void => expect.unreachable('nothing is due')
  const stopped = new RecycleClock({ idleMs: 10, maxLifetimeMs: 10 }, () => 0, onDue)
  stopped.stop()
  const _endless = new RecycleClock({}, () => 0, onDue)
  expect(vi.getTimerCount()).toBe(0)
  vi.advanceTimersByTime(1_000)
})
