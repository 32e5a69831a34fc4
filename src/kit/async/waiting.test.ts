import { getEventListeners } from 'node:events'
import { describe, expect, test, vi } from 'vitest'
import { MillraceError } from '../../errors/index.ts'
import { AbortScope, AbortSource, maxTimerMs, onAbort, sleep, timerMs, withAbort, settlesWithin } from './lifecycle.ts'
import { Semaphore, type ExhaustedClock, StopClock } from './waiting.ts'

const monthMs = 30 * 24 * 3_600_000

test('a delay is one that a timer can take', () => {
  expect([-5, 0, 250, monthMs, Infinity].map(timerMs)).toEqual([0, 0, 250, maxTimerMs, maxTimerMs])
})

test.each([monthMs, Infinity])('what may take %d ms is waited for', async (ms) => {
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
  test('grants in the order of asking, never more than its limit', async () => {
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

  test('a permit that is given back by somebody who hears the same abort is not lost', async () => {
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

  test('does not let a newcomer overtake those who wait', () => {
    const semaphore = new Semaphore(1)
    expect(semaphore.tryAcquire()).toBe(true)
    void semaphore.acquire()
    semaphore.release()
    expect(semaphore.tryAcquire()).toBe(false)
  })

  test('one that gives up leaves no listener and does not use up a permit', async () => {
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

  test('a larger limit lets the waiting in; a smaller one takes nothing back', async () => {
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

  test('a limit beyond all counting is one that holds nobody up', () => {
    expect(new Semaphore(Infinity).tryAcquire()).toBe(true)
    expect(new Semaphore(2 ** 32).tryAcquire()).toBe(true)
  })

  test('past its bound it refuses instead of queueing', async () => {
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
