import { getEventListeners } from 'node:events'
import { describe, expect, test } from 'vitest'
import { MillraceError } from '../errors/index.ts'
import { AbortSource, onAbort } from './abort-source.ts'
import { Semaphore } from './semaphore.ts'

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
    const givenUp = semaphore.acquire(controller.signal)
    const next = semaphore.acquire(controller.signal)
    const patient = semaphore.acquire()
    controller.abort(new MillraceError('cancelled', 'enough'))
    await expect(givenUp).rejects.toMatchObject({ code: 'cancelled' })
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

/** Two threads' semaphores over the same cells, on one thread: what one sends the other collects when the test says. */
function pair(limit: number) {
  const cells = new Int32Array(new SharedArrayBuffer(Semaphore.cellsFor(2) * Int32Array.BYTES_PER_ELEMENT))
  const woken: number[] = []
  const [one, other] = [0, 1].map((place) => new Semaphore({ cells, place, wake: (at) => woken.push(at) })) as [
    Semaphore,
    Semaphore,
  ]
  one.resize(limit)
  return { one, other, woken }
}

describe('shared between threads', () => {
  test('the limit holds for all places together', () => {
    const { one, other } = pair(3)
    expect([one.tryAcquire(), one.tryAcquire(), other.tryAcquire(), other.tryAcquire()]).toEqual([
      true,
      true,
      true,
      false,
    ])
    one.release()
    expect(other.tryAcquire()).toBe(true)
    expect([one.held, other.held]).toEqual([3, 3])
  })

  test('a free permit goes to the place that has the fewest, and stays where both have as many', async () => {
    const { one, other, woken } = pair(4)
    for (let count = 0; count < 4; count += 1) one.tryAcquire()
    const granted: string[] = []
    for (let count = 0; count < 4; count += 1) {
      void one.acquire().then(() => granted.push('one'))
      void other.acquire().then(() => granted.push('other'))
    }
    for (let count = 0; count < 4; count += 1) {
      one.release()
      other.collect()
      await Promise.resolve()
    }
    // 3:1, 2:2, and then each release serves the own queue.
    expect(granted).toEqual(['other', 'other', 'one', 'one'])
    expect(woken).toEqual([1, 1])
    other.release()
    await Promise.resolve()
    expect(granted.at(-1)).toBe('other')
  })

  test('a single permit goes round', async () => {
    const { one, other } = pair(1)
    one.tryAcquire()
    const granted: string[] = []
    for (let count = 0; count < 3; count += 1) {
      void one.acquire().then(() => granted.push('one'))
      void other.acquire().then(() => granted.push('other'))
    }
    for (const holder of [one, other, one, other, one, other]) {
      holder.release()
      one.collect()
      other.collect()
      await Promise.resolve()
    }
    expect(granted).toEqual(['other', 'one', 'other', 'one', 'other', 'one'])
  })

  test('one permit at a time is on its way to a place; the rest follows when it answers', async () => {
    const { one, other, woken } = pair(3)
    for (let count = 0; count < 3; count += 1) one.tryAcquire()
    const waits = [other.acquire(), other.acquire(), other.acquire()]
    for (let count = 0; count < 3; count += 1) one.release()
    expect(woken).toEqual([1])
    expect(one.held).toBe(1)
    other.collect()
    await Promise.all(waits)
    expect(one.held).toBe(3)
  })

  test('what was sent to somebody who gives up is passed on', async () => {
    const { one, other } = pair(1)
    one.tryAcquire()
    const controller = new AbortController()
    const givenUp = other.acquire(controller.signal)
    one.release()
    const patient = one.acquire()
    controller.abort(new MillraceError('cancelled', 'enough'))
    await expect(givenUp).rejects.toMatchObject({ code: 'cancelled' })
    other.collect()
    one.collect()
    await patient
    expect([one.held, one.waiting]).toEqual([1, 0])
  })

  test('a dead place gives back what it held, was sent and waited for', async () => {
    const { one, other, woken } = pair(3)
    other.tryAcquire()
    one.tryAcquire()
    one.tryAcquire()
    void other.acquire()
    void other.acquire()
    other.release()
    one.release()
    expect(woken).toEqual([1])
    const waiting = one.acquire()
    one.reclaim(1)
    await waiting
    expect([one.held, one.waiting]).toEqual([2, 0])
    expect(one.tryAcquire()).toBe(true)
  })

  test('of two that change the limit at once one succeeds', () => {
    const { one, other } = pair(10)
    expect([one.tryResize(10, 8), other.tryResize(10, 8)]).toEqual([true, false])
    expect(other.limit).toBe(8)
  })
})
