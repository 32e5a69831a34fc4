import { AsyncLocalStorage } from 'node:async_hooks'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { TimeSlice, TurnBatches } from './waiting.ts'

/** Batches whose clock goes on only while something works. */
function clockedBatches() {
  let nowMs = 0
  return {
    batches: new TurnBatches(() => nowMs),
    work: (ms: number): void => {
      nowMs += ms
    },
  }
}

test('pieces added in one turn of the event loop run together at its end', async () => {
  const { batches } = clockedBatches()
  const order: string[] = []
  for (const name of ['one', 'other']) {
    batches.add(() => {
      order.push(name)
      queueMicrotask(() => order.push(`what follows from ${name}`))
    })
  }
  expect(order).toEqual([])
  await nextTurn()
  expect(order).toEqual(['one', 'other', 'what follows from one', 'what follows from other'])
})

test('each piece runs in the async context in which it was added', async () => {
  const { batches } = clockedBatches()
  const context = new AsyncLocalStorage<string>()
  const seen: (string | undefined)[] = []
  for (const name of ['one', 'other']) {
    context.run(name, () => batches.add(() => seen.push(context.getStore())))
  }
  await nextTurn()
  expect(seen).toEqual(['one', 'other'])
})

test('many pieces run in order, over several turns of the event loop', async () => {
  const { batches } = clockedBatches()
  const order: number[] = []
  const count = 100
  for (let index = 0; index < count; index += 1) batches.add(() => order.push(index))
  let turns = 0
  let most = 0
  while (order.length < count) {
    const before = order.length
    await nextTurn()
    turns += 1
    most = Math.max(most, order.length - before)
    // One that comes meanwhile does not overtake those that wait.
    if (turns === 1) batches.add(() => order.push(count))
  }
  expect(most).toBe(16)
  await expect.poll(() => order).toEqual(Array.from({ length: count + 1 }, (_, index) => index))
})

test('a slow piece moves the remaining pieces to later turns', async () => {
  const { batches, work } = clockedBatches()
  const done: number[] = []
  for (let index = 0; index < 10; index += 1) {
    batches.add(() => {
      work(3)
      done.push(index)
    })
  }
  await nextTurn()
  expect(done).toEqual([0, 1])
  await nextTurn()
  expect(done).toEqual([0, 1, 2, 3])
  await expect.poll(() => done.length).toBe(10)
})

test('a piece that adds further pieces does not block the event loop', async () => {
  const { batches } = clockedBatches()
  let done = 0
  const again = (): void => {
    done += 1
    if (done < 3) batches.add(again)
  }
  batches.add(again)
  await nextTurn()
  expect(done).toBe(1)
  await expect.poll(() => done).toBe(3)
})

test('an error thrown by a piece is uncaught, and the other pieces still run', async () => {
  const { batches } = clockedBatches()
  const order: string[] = []
  const uncaught: unknown[] = []
  process.setUncaughtExceptionCaptureCallback((error) => uncaught.push(error))
  try {
    const fault = new Error('a fault')
    batches.add(() => {
      throw fault
    })
    batches.add(() => order.push('waited with it'))
    await expect.poll(() => uncaught).toEqual([fault])
    batches.add(() => order.push('came later'))
    await expect.poll(() => order).toEqual(['waited with it', 'came later'])
  } finally {
    process.setUncaughtExceptionCaptureCallback(null)
  }
})

const numbers = Array.from({ length: 1_000 }, (_, index) => index)

/** How many turns others had while all of them came, in order. */
async function turnsDuring(slice: TimeSlice): Promise<number> {
  let turns = 0
  const count = (): void => {
    turns += 1
    immediate = setImmediate(count)
  }
  let immediate = setImmediate(count)
  expect(await Array.fromAsync(slice.over(numbers))).toEqual(numbers)
  clearImmediate(immediate)
  return turns
}

test('other tasks run when a time slice is over, and not before', async () => {
  expect(await turnsDuring(new TimeSlice(0))).toBeGreaterThanOrEqual(numbers.length - 1)
  expect(await turnsDuring(new TimeSlice(Infinity))).toBe(0)
})
