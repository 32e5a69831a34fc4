import { expect, test } from 'vitest'
import { Doorbell } from './doorbell.ts'

function start() {
  const bells = new Int32Array(new SharedArrayBuffer(8))
  const bell = new Doorbell(bells, 0)
  let heard = 0
  const stop = bell.onRing(() => (heard += 1))
  return { bells, bell, stop, heard: () => heard }
}

test('is heard by the one it was rung for, every time', async () => {
  const { bells, bell, heard } = start()
  Doorbell.ring(bells, 1)
  for (let count = 1; count <= 3; count += 1) {
    Doorbell.ring(bells, 0)
    await expect.poll(heard).toBe(count)
  }
  Doorbell.ringAll(bells)
  await expect.poll(heard).toBe(4)
  await bell.close()
})

test('rings that come together may be heard as one, but none is missed', async () => {
  const { bells, bell, heard } = start()
  for (let count = 0; count < 100; count += 1) Doorbell.ring(bells, 0)
  await expect.poll(heard).toBeGreaterThanOrEqual(1)
  await bell.close()
})

test('closed, or no longer listened to, it is silent and leaves nobody waiting', async () => {
  const { bells, bell, stop, heard } = start()
  stop()
  Doorbell.ring(bells, 0)
  const other = new Doorbell(bells, 1)
  let isHeard = false
  other.onRing(() => (isHeard = true))
  Doorbell.ring(bells, 1)
  await expect.poll(() => isHeard).toBe(true)
  await Promise.all([bell.close(), bell.close(), other.close()])
  Doorbell.ringAll(bells)
  await expect.poll(() => Atomics.notify(bells, 0) + Atomics.notify(bells, 1)).toBe(0)
  expect(heard()).toBe(0)
})
