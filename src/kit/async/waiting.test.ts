import { getEventListeners } from 'node:events'
import { describe, expect, test, vi } from 'vitest'
import { MillraceError } from '../../errors/index.ts'
import { AbortScope, AbortSource, maxTimerMs, onAbort, sleep, timerMs, withAbort, settlesWithin } from './lifecycle.ts'
import { Semaphore, type ExhaustedClock, StopClock } from './waiting.ts'

const monthMs = 30 * 24 * 3_600_000

test('timerMs() limits a delay to what a timer accepts', () => {
  expect([-5, 0, 250, monthMs, Infinity].map(timerMs)).toEqual([0, 0, 250, maxTimerMs, maxTimerMs])
})

test.each([monthMs, Infinity])('waits of %d ms do not end early', async (ms) => {
  const leaving = new AbortController()
  const { promise: work, resolve } = Promise.withResolvers<void>()
  const waits = [
    sleep(ms, leaving.signal).then(() => 'slept', String),
    settlesWithin(work, ms).then(String),
    withAbort(new Promise<never>(() => {}), new AbortScope(leaving.signal, ms).signal).catch(String),
  ]
  // Longer than the millisecond that Node gives to what is too long for it.
  await sleep(5)
  leaving.abort('left')
  resolve()
  expect(await Promise.all(waits)).toEqual(['left', 'true', 'left'])
})

describe('Semaphore', () => {
  test('grants permits in the order of the requests, never more than its limit', async () => {
    const semaphore = new Semaphore(2)
    const granted: number[] = []
    const asks = [0, 1, 2, 3, 4].map((index) => semaphore.acquire().then(() => granted.push(index)))
    await Promise.resolve()
    expect(granted).toEqual([0, 1])
    expect(semaphore.waiting).toBe(3)
    for (let released = 0; released < 3; released += 1) semaphore.release()
    await Promise.all(asks)
    expect(granted).toEqual([0, 1, 2, 3, 4])
    expect(semaphore.held).toBe(2)
  })

  test('a permit released by a listener of the same abort is not lost', async () => {
    const semaphore = new Semaphore(1)
    const source = new AbortSource()
    semaphore.tryAcquire()
    onAbort(source.signal, { handleEvent: () => semaphore.release() })
    const waiting = semaphore.acquire(source.signal)
    source.abort(new Error('stop'))
    await waiting
    expect([semaphore.held, semaphore.waiting]).toEqual([1, 0])
    semaphore.release()
    expect(semaphore.tryAcquire()).toBe(true)
  })

  test('does not let a new request overtake the waiting ones', () => {
    const semaphore = new Semaphore(1)
    expect(semaphore.tryAcquire()).toBe(true)
    void semaphore.acquire()
    semaphore.release()
    expect(semaphore.tryAcquire()).toBe(false)
  })

  test('an aborted wait leaves no listener and takes no permit', async () => {
    const semaphore = new Semaphore(1)
    semaphore.tryAcquire()
    const controller = new AbortController()
    const aborted = semaphore.acquire(controller.signal)
    const next = semaphore.acquire(controller.signal)
    const patient = semaphore.acquire()
    controller.abort(new MillraceError('cancelled', 'enough'))
    await expect(aborted).rejects.toMatchObject({ code: 'cancelled' })
    await expect(next).rejects.toMatchObject({ code: 'cancelled' })
    expect(getEventListeners(controller.signal, 'abort')).toHaveLength(0)
    semaphore.release()
    await patient
    expect(semaphore.held).toBe(1)
    expect(semaphore.waiting).toBe(0)
  })

  test('a larger limit admits waiting requests; a smaller one revokes no permit', async () => {
    const semaphore = new Semaphore(1)
    await semaphore.acquire()
    const second = semaphore.acquire()
    semaphore.resize(2)
    await second
    semaphore.resize(1)
    expect(semaphore.held).toBe(2)
    const third = semaphore.acquire()
    semaphore.release()
    expect(semaphore.waiting).toBe(1)
    semaphore.release()
    await third
  })

  test('a very large limit makes nobody wait', () => {
    expect(new Semaphore(Infinity).tryAcquire()).toBe(true)
    expect(new Semaphore(2 ** 32).tryAcquire()).toBe(true)
  })

  test('past the limit of its queue it refuses requests', async () => {
    const semaphore = new Semaphore(1, 1)
    await semaphore.acquire()
    const waiting = semaphore.acquire()
    await expect(semaphore.acquire()).rejects.toMatchObject({ code: 'overloaded' })
    semaphore.release()
    await waiting
  })
})

/** Fake clocks for one test, real ones again at its end. */
function fakeTime(): Disposable {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
  return { [Symbol.dispose]: () => void vi.useRealTimers() }
}

function clockOf(limits: { limitMs: number; wallMs?: number }): { clock: StopClock; spent: ExhaustedClock[] } {
  const spent: ExhaustedClock[] = []
  return { clock: new StopClock({ ...limits, onSpent: (what) => spent.push(what) }), spent }
}

test('a watched clock reports once that its time is spent', () => {
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

test('a wait postpones the limit by its duration', () => {
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

test('the wall-clock limit also runs during a wait', () => {
  using _time = fakeTime()
  const { clock, spent } = clockOf({ limitMs: 100, wallMs: 300 })
  clock.watch()
  clock.startWait()
  vi.advanceTimersByTime(299)
  expect(spent).toEqual([])
  vi.advanceTimersByTime(1)
  expect(spent).toEqual(['wall'])
})

test('time carried over counts at once; time given back does not count', () => {
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

test('a stopped clock leaves no timer, and later waits do not change its figures', () => {
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

test('if both limits are due at once, the working time is reported', () => {
  using _time = fakeTime()
  const { clock, spent } = clockOf({ limitMs: 100, wallMs: 100 })
  clock.watch()
  vi.advanceTimersByTime(100)
  expect(spent).toEqual(['time'])
})

test('if a blocked loop passes both limits, the one due first is reported', async () => {
  const { clock, spent } = clockOf({ limitMs: 10, wallMs: 20 })
  clock.watch()
  while (clock.wallMsLeft > -5);
  await expect.poll(() => spent).toEqual(['time'])
})
