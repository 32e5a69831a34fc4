import { describe, expect, test } from 'vitest'
import { seededRandom } from '../bytes/numbers.ts'
import { ArraySet } from './lifecycle.ts'
import { AsyncQueue, peekFirst } from './queues.ts'

describe('AsyncQueue', () => {
  test('delivers everything in order, then ends', async () => {
    const queue = new AsyncQueue<number>(100)
    for (let item = 0; item < 50; item += 1) void queue.push(item)
    queue.end()
    const seen: number[] = []
    for await (const item of queue) seen.push(item)
    expect(seen).toEqual(Array.from({ length: 50 }, (_, index) => index))
  })

  test('a producer waits for room', async () => {
    const queue = new AsyncQueue<string>(1)
    expect(queue.push('first')).toBeUndefined()
    let hasRoom = false
    const room = queue.push('second')?.then(() => (hasRoom = true))
    await Promise.resolve()
    expect(hasRoom).toBe(false)
    const reader = queue[Symbol.asyncIterator]()
    expect(await reader.next()).toMatchObject({ value: 'first' })
    await room
    expect(hasRoom).toBe(true)
    await reader.return()
  })

  test('an error is delivered after the items pushed before it', async () => {
    const queue = new AsyncQueue<number>(10)
    void queue.push(1)
    queue.fail(new Error('source broke'))
    const seen: number[] = []
    await expect(
      (async () => {
        for await (const item of queue) seen.push(item)
      })(),
    ).rejects.toThrow('source broke')
    expect(seen).toEqual([1])
  })

  test('without a reader, awaitEnd() drops items, frees producers and refuses later readers', async () => {
    const queue = new AsyncQueue<number>(0)
    const blocked = queue.push(1)
    queue.awaitEnd()
    await blocked
    expect(queue.push(2)).toBeUndefined()
    expect(() => queue[Symbol.asyncIterator]()).toThrow(expect.objectContaining({ code: 'usage' }))
  })

  test('a reader that starts before anything was dropped gets every item', async () => {
    const queue = new AsyncQueue<number>(1)
    void queue.push(1)
    queue.awaitEnd()
    const reader = queue[Symbol.asyncIterator]()
    void queue.push(2)
    expect((await reader.next()).value).toBe(1)
    expect((await reader.next()).value).toBe(2)
    await reader.return()
  })

  test('after a reader calls awaitEnd(), it gets every item and producers do not wait', async () => {
    const queue = new AsyncQueue<number>(0)
    const blocked = queue.push(1)
    const alsoBlocked = queue.push(2)
    const reader = queue[Symbol.asyncIterator]()
    await reader.next()
    queue.awaitEnd()
    await Promise.all([blocked, alsoBlocked])
    expect(queue.push(3)).toBeUndefined()
    expect(queue.size).toBe(2)
    expect([await reader.next(), await reader.next()]).toMatchObject([{ value: 2 }, { value: 3 }])
    await reader.return()
  })

  test('a reader that waits for an item still holds producers back when another caller awaits the end', async () => {
    const queue = new AsyncQueue<number>(0)
    const reader = queue[Symbol.asyncIterator]()
    const step = reader.next()
    queue.awaitEnd()
    expect(queue.push(1)).toBeUndefined()
    expect(queue.push(2)).toBeInstanceOf(Promise)
    expect(await step).toMatchObject({ value: 1 })
    await reader.return()
  })

  test('allows one reader only', () => {
    const queue = new AsyncQueue<number>(1)
    void queue[Symbol.asyncIterator]().next()
    expect(() => queue[Symbol.asyncIterator]()).toThrow(expect.objectContaining({ code: 'usage' }))
    queue.end()
  })

  test('leaving the loop frees waiting producers and notifies the owner', async () => {
    let isReported = false
    const queue = new AsyncQueue<number>(0, () => {
      isReported = true
    })
    const blocked = queue.push(1)
    const alsoBlocked = queue.push(2)
    for await (const _item of queue) break
    await Promise.all([blocked, alsoBlocked])
    expect(isReported).toBe(true)
    expect(queue.push(3)).toBeUndefined()
  })

  test('a reader that returns before or during its first step ends the queue', async () => {
    let gone = 0
    const unread = new AsyncQueue<number>(10, () => void (gone += 1))
    expect(await unread[Symbol.asyncIterator]().return()).toEqual({ done: true, value: undefined })
    const queue = new AsyncQueue<number>(10, () => void (gone += 1))
    const reader = queue[Symbol.asyncIterator]()
    const step = reader.next()
    await reader.return()
    expect(await step).toEqual({ done: true, value: undefined })
    expect(gone).toBe(2)
    expect(queue.push(1)).toBeUndefined()
  })

  test('pending steps are served in order, and an error ends all of them', async () => {
    const queue = new AsyncQueue<number>(10)
    const reader = queue[Symbol.asyncIterator]()
    const steps = [reader.next(), reader.next(), reader.next()]
    void queue.push(1)
    queue.fail(new Error('source broke'))
    expect(await steps[0]).toEqual({ done: false, value: 1 })
    await expect(steps[1]).rejects.toThrow('source broke')
    expect(await steps[2]).toEqual({ done: true, value: undefined })
    expect(await reader.next()).toEqual({ done: true, value: undefined })
  })
})

test('an ArraySet has the same members as a Set, in any order', () => {
  const arraySet = new ArraySet<number>()
  const set = new Set<number>()
  const random = seededRandom(7)
  for (let step = 0; step < 5_000; step += 1) {
    const member = Math.floor(random() * 200)
    if (set.has(member)) {
      arraySet.delete(member)
      set.delete(member)
    } else {
      arraySet.add(member)
      set.add(member)
    }
    expect(arraySet.size).toBe(set.size)
  }
  expect(new Set(arraySet)).toEqual(set)
})

test('deleting a value that an ArraySet does not have changes nothing', () => {
  const arraySet = new ArraySet<string>()
  arraySet.add('a')
  arraySet.delete('b')
  expect([...arraySet]).toEqual(['a'])
})

test('members of an ArraySet may be deleted during iteration', () => {
  const arraySet = new ArraySet<number>()
  for (let member = 0; member < 10; member += 1) arraySet.add(member)
  const seen: number[] = []
  for (const member of arraySet) {
    seen.push(member)
    arraySet.delete(member)
  }
  expect(seen).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
  expect(arraySet.size).toBe(0)
})

async function* numbers(log: string[]): AsyncGenerator<number> {
  try {
    for (let number = 0; number < 3; number += 1) {
      log.push(`read ${number}`)
      yield number
    }
  } finally {
    log.push('closed')
  }
}

test('peekFirst() reads one item ahead and yields all items in order', async () => {
  const log: string[] = []
  await using source = await peekFirst(numbers(log))
  expect(log).toEqual(['read 0'])
  expect(await Array.fromAsync(source)).toEqual([0, 1, 2])
})

test('peekFirst() throws the first error of a source at once', async () => {
  await expect(
    peekFirst({
      [Symbol.asyncIterator]: () => ({ next: () => Promise.reject(new Error('no such file')) }),
    }),
  ).rejects.toThrow('no such file')
})

test('peekFirst() closes its source if the reader leaves early or reads nothing', async () => {
  const left: string[] = []
  for await (const _number of await peekFirst(numbers(left))) break
  expect(left.at(-1)).toBe('closed')
  const unread: string[] = []
  {
    await using _source = await peekFirst(numbers(unread))
  }
  expect(unread).toEqual(['read 0', 'closed'])
})

test('peekFirst() of an empty source yields nothing', async () => {
  async function* nothing(): AsyncGenerator<number> {}
  expect(await Array.fromAsync(await peekFirst(nothing()))).toEqual([])
})
