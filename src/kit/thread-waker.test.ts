import { expect, test } from 'vitest'
import { ThreadWaker } from './thread-waker.ts'

function start() {
  const counters = new Int32Array(new SharedArrayBuffer(8))
  const waker = new ThreadWaker(counters, 0)
  let woken = 0
  const stop = waker.onWake(() => (woken += 1))
  return { counters, waker, stop, woken: () => woken }
}

test('wakes the thread it is meant for, every time', async () => {
  const { counters, waker, woken } = start()
  ThreadWaker.wake(counters, 1)
  for (let count = 1; count <= 3; count += 1) {
    ThreadWaker.wake(counters, 0)
    await expect.poll(woken).toBe(count)
  }
  ThreadWaker.wakeAll(counters)
  await expect.poll(woken).toBe(4)
  await waker.close()
})

test('wake-ups that come together may be noticed as one, but none is missed', async () => {
  const { counters, waker, woken } = start()
  for (let count = 0; count < 100; count += 1) ThreadWaker.wake(counters, 0)
  await expect.poll(woken).toBeGreaterThanOrEqual(1)
  await waker.close()
})

test('closed, or no longer listened to, it calls nobody and leaves nobody waiting', async () => {
  const { counters, waker, stop, woken } = start()
  stop()
  ThreadWaker.wake(counters, 0)
  const other = new ThreadWaker(counters, 1)
  let isWoken = false
  other.onWake(() => (isWoken = true))
  ThreadWaker.wake(counters, 1)
  await expect.poll(() => isWoken).toBe(true)
  await Promise.all([waker.close(), waker.close(), other.close()])
  ThreadWaker.wakeAll(counters)
  await expect.poll(() => Atomics.notify(counters, 0) + Atomics.notify(counters, 1)).toBe(0)
  expect(woken()).toBe(0)
})
