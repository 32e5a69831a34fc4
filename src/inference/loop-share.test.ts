import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { LoopShare } from './_loop-share.ts'

const spin = (ms: number): void => {
  const until = performance.now() + ms
  while (performance.now() < until);
}

test('a reply by itself is handled at once', () => {
  const share = new LoopShare()
  let done = 0
  share.run(() => (done += 1))
  share.run(() => (done += 1))
  expect(done).toBe(2)
})

test('a crowd is handled in order, over several turns of the loop', async () => {
  const share = new LoopShare()
  const order: number[] = []
  const count = 100
  for (let index = 0; index < count; index += 1) {
    share.run(() => {
      spin(1)
      order.push(index)
    })
  }
  // Not all of it in the turn in which it came.
  expect(order.length).toBeGreaterThan(0)
  expect(order.length).toBeLessThan(count / 2)
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
  expect(most).toBeLessThan(20)
  expect(turns).toBeGreaterThan(4)
  await expect.poll(() => order).toEqual(Array.from({ length: count + 1 }, (_, index) => index))
})

test('once the crowd is gone, replies are handled at once again', async () => {
  const share = new LoopShare()
  let done = 0
  for (let index = 0; index < 30; index += 1) {
    share.run(() => {
      spin(1)
      done += 1
    })
  }
  await expect.poll(() => done).toBe(30)
  await nextTurn()
  share.run(() => (done += 1))
  expect(done).toBe(31)
})
