import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { LoopShare } from './_loop-share.ts'

/** A share whose clock goes on only while something works. */
function clockedShare() {
  let nowMs = 0
  return {
    share: new LoopShare(() => nowMs),
    work: (ms: number): void => {
      nowMs += ms
    },
  }
}

test('a reply by itself is handled at once', () => {
  const { share } = clockedShare()
  let done = 0
  share.run(() => (done += 1))
  share.run(() => (done += 1))
  expect(done).toBe(2)
})

test('a crowd is handled in order, over several turns of the loop', async () => {
  const { share, work } = clockedShare()
  const order: number[] = []
  const count = 100
  for (let index = 0; index < count; index += 1) {
    share.run(() => {
      work(1)
      order.push(index)
    })
  }
  // What fits into 4 ms, and the one that goes beyond.
  expect(order).toHaveLength(5)
  let turns = 0
  let most = 0
  while (order.length < count) {
    const before = order.length
    await nextTurn()
    turns += 1
    most = Math.max(most, order.length - before)
    // One that comes meanwhile does not overtake those that wait.
    if (turns === 1) share.run(() => order.push(count))
  }
  expect(most).toBe(8)
  expect(turns).toBeGreaterThanOrEqual(Math.ceil((count - 5) / 8))
  await expect.poll(() => order).toEqual(Array.from({ length: count + 1 }, (_, index) => index))
})

test('once the crowd is gone, replies are handled at once again', async () => {
  const { share, work } = clockedShare()
  let done = 0
  for (let index = 0; index < 30; index += 1) {
    share.run(() => {
      work(1)
      done += 1
    })
  }
  await expect.poll(() => done).toBe(30)
  await nextTurn()
  share.run(() => (done += 1))
  expect(done).toBe(31)
})
