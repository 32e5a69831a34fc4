import { expect, test, vi } from 'vitest'
import { StopClock, type SpentTime } from './stop-clock.ts'

/** Fake clocks for one test, real ones again at its end. */
function fakeTime(): Disposable {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
  return { [Symbol.dispose]: () => void vi.useRealTimers() }
}

function clockOf(limits: { limitMs: number; wallMs?: number }): { clock: StopClock; spent: SpentTime[] } {
  const spent: SpentTime[] = []
  return { clock: new StopClock({ ...limits, onSpent: (what) => spent.push(what) }), spent }
}

test('says once that its time is spent, if it is watched', () => {
  using _time = fakeTime()
  const unwatched = clockOf({ limitMs: 100 })
  const { clock, spent } = clockOf({ limitMs: 100 })
  clock.watch()
  vi.advanceTimersByTime(99)
  expect(spent).toEqual([])
  vi.advanceTimersByTime(100)
  expect(spent).toEqual(['time'])
  expect(unwatched.spent).toEqual([])
})

test('a wait puts it off by as long as it took', () => {
  using _time = fakeTime()
  const { clock, spent } = clockOf({ limitMs: 100 })
  clock.watch()
  vi.advanceTimersByTime(40)
  clock.startWait()
  vi.advanceTimersByTime(500)
  clock.endWait()
  vi.advanceTimersByTime(59)
  expect(spent).toEqual([])
  vi.advanceTimersByTime(1)
  expect(spent).toEqual(['time'])
})

test('the time on the wall runs out during a wait, too', () => {
  using _time = fakeTime()
  const { clock, spent } = clockOf({ limitMs: 100, wallMs: 300 })
  clock.watch()
  clock.startWait()
  vi.advanceTimersByTime(299)
  expect(spent).toEqual([])
  vi.advanceTimersByTime(1)
  expect(spent).toEqual(['wall'])
})

test('time that is carried over counts at once; time that is given back does not', () => {
  using _time = fakeTime()
  const { clock, spent } = clockOf({ limitMs: 100 })
  clock.watch()
  clock.carry(70)
  clock.giveBack(20)
  vi.advanceTimersByTime(49)
  expect(spent).toEqual([])
  vi.advanceTimersByTime(1)
  expect(spent).toEqual(['time'])
})

test('stopped, it leaves no timer and its figures stay, whatever still ends or begins', () => {
  using _time = fakeTime()
  const { clock, spent } = clockOf({ limitMs: 100, wallMs: 300 })
  clock.watch()
  clock.startWait()
  vi.advanceTimersByTime(10)
  clock.stop()
  vi.advanceTimersByTime(50)
  clock.endWait()
  expect(clock.waitedMs).toBe(10)
  clock.startWait()
  expect(clock.waitedMs).toBe(10)
  clock.endWait()
  expect(clock.waitedMs).toBe(10)
  expect(clock.wallMsLeft).toBe(290)
  expect(vi.getTimerCount()).toBe(0)
  vi.advanceTimersByTime(1_000)
  expect(spent).toEqual([])
})

test('of two limits that are due together it is the time that counts', () => {
  using _time = fakeTime()
  const { clock, spent } = clockOf({ limitMs: 100, wallMs: 100 })
  clock.watch()
  vi.advanceTimersByTime(100)
  expect(spent).toEqual(['time'])
})

test('on a loop that was held up past both limits it is the one that was due first', async () => {
  const { clock, spent } = clockOf({ limitMs: 10, wallMs: 20 })
  clock.watch()
  while (clock.wallMsLeft > -5);
  await expect.poll(() => spent).toEqual(['time'])
})
