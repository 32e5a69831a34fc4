import { expect, test } from 'vitest'
import { activeResources, leftSince } from '../../kit/_testing/active-resources.ts'
import { seededRandom } from '../../kit/index.ts'
import { ExpiryQueue } from './_expiry-queue.ts'

interface Item {
  expiresAt: number
  readonly name: number
}

test('items expire in the order of their times, unless they were used or removed', async () => {
  const random = seededRandom(7)
  const expired: Item[] = []
  using queue = new ExpiryQueue<Item>((item) => expired.push(item))
  const start = performance.now()
  const items = Array.from({ length: 200 }, (_, name): Item => ({ name, expiresAt: start + 5 + random() * 40 }))
  for (const item of items) queue.add(item)
  const [removed, used] = [items.slice(0, 150), items.slice(150, 175)]
  for (const item of removed) queue.remove(item)
  for (const item of used) item.expiresAt = start + 60_000
  const left = items.slice(175)
  await expect.poll(() => expired.length).toBe(left.length)
  expect(expired).toEqual(left.toSorted((one, other) => one.expiresAt - other.expiresAt))
})

test('one that was used expires in its new time', async () => {
  const expired: number[] = []
  using queue = new ExpiryQueue<Item>(() => expired.push(performance.now()))
  const item = { name: 1, expiresAt: performance.now() + 5 }
  queue.add(item)
  item.expiresAt += 60
  await expect.poll(() => expired.length).toBe(1)
  expect(expired[0]).toBeGreaterThanOrEqual(item.expiresAt)
})

test('many that expire together leave room for others in between', async () => {
  let expired = 0
  let seen: number | undefined
  using queue = new ExpiryQueue<Item>(() => {
    expired += 1
    if (expired === 1) setImmediate(() => (seen = expired))
  })
  const expiresAt = performance.now()
  for (let name = 0; name < 1000; name += 1) queue.add({ name, expiresAt })
  await expect.poll(() => expired).toBe(1000)
  expect(seen).toBeLessThan(1000)
})

test('one that is added after the end starts no timer', async () => {
  const before = activeResources()
  const queue = new ExpiryQueue<Item>(() => expect.unreachable())
  queue.add({ name: 1, expiresAt: performance.now() + 60_000 })
  queue[Symbol.dispose]()
  queue.add({ name: 2, expiresAt: performance.now() + 60_000 })
  expect(await leftSince(before)).toEqual([])
})

test('one may be added again as it expires', async () => {
  let times = 0
  using queue = new ExpiryQueue<Item>((item) => {
    times += 1
    if (times === 3) return
    item.expiresAt = performance.now() + 5
    queue.add(item)
  })
  queue.add({ name: 1, expiresAt: performance.now() })
  await expect.poll(() => times).toBe(3)
})
