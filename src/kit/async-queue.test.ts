import { describe, expect, test } from 'vitest'
import { AsyncQueue } from './async-queue.ts'

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

  test('an error comes after what was pushed before it', async () => {
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

  test('what nobody reads while the end is awaited holds nobody up, and cannot be read in part later', async () => {
    const queue = new AsyncQueue<number>(0)
    const blocked = queue.push(1)
    queue.awaitEnd()
    await blocked
    expect(queue.push(2)).toBeUndefined()
    expect(() => queue[Symbol.asyncIterator]()).toThrow(expect.objectContaining({ code: 'usage' }))
  })

  test('a reader that comes before anything was dropped gets everything', async () => {
    const queue = new AsyncQueue<number>(1)
    void queue.push(1)
    queue.awaitEnd()
    const reader = queue[Symbol.asyncIterator]()
    void queue.push(2)
    expect((await reader.next()).value).toBe(1)
    expect((await reader.next()).value).toBe(2)
    await reader.return()
  })

  test('a reader that awaits the end itself gets everything and holds nobody up', async () => {
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

  test('a reader that waits for an item still holds up its producers when somebody else awaits the end', async () => {
    const queue = new AsyncQueue<number>(0)
    const reader = queue[Symbol.asyncIterator]()
    const step = reader.next()
    queue.awaitEnd()
    expect(queue.push(1)).toBeUndefined()
    expect(queue.push(2)).toBeInstanceOf(Promise)
    expect(await step).toMatchObject({ value: 1 })
    await reader.return()
  })

  test('has one reader', () => {
    const queue = new AsyncQueue<number>(1)
    void queue[Symbol.asyncIterator]().next()
    expect(() => queue[Symbol.asyncIterator]()).toThrow(expect.objectContaining({ code: 'usage' }))
    queue.end()
  })

  test('leaving the loop frees waiting producers and tells the owner', async () => {
    let isTold = false
    const queue = new AsyncQueue<number>(0, () => {
      isTold = true
    })
    const blocked = queue.push(1)
    const alsoBlocked = queue.push(2)
    for await (const _item of queue) break
    await Promise.all([blocked, alsoBlocked])
    expect(isTold).toBe(true)
    expect(queue.push(3)).toBeUndefined()
  })

  test('a reader that leaves before its first step, or beside one, ends the queue', async () => {
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

  test('steps that are not awaited are served in order, and an error ends them all', async () => {
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
