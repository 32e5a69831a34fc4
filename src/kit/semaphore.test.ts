import { getEventListeners } from 'node:events'
import { describe, expect, test } from 'vitest'
import { MillraceError } from '../errors/index.ts'
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

  test('past its bound it refuses instead of queueing', async () => {
    const semaphore = new Semaphore(1, 1)
    await semaphore.acquire()
    const waiting = semaphore.acquire()
    await expect(semaphore.acquire()).rejects.toMatchObject({ code: 'overloaded' })
    semaphore.release()
    await waiting
  })
})
