import { PassThrough, Writable } from 'node:stream'
import { expect, test } from 'vitest'
import { passOn } from './_pass-on.ts'

test('many sources are held back by one target with one listener, and all go on', async () => {
  const taken: string[] = []
  const taking: (() => void)[] = []
  const target = new Writable({
    highWaterMark: 1,
    write: (chunk: Buffer, _encoding, done) => {
      taken.push(chunk.toString())
      taking.push(done)
    },
  })
  const sources = Array.from({ length: 20 }, () => new PassThrough())
  for (const [index, source] of sources.entries()) {
    passOn(source, target)
    source.end(`${index};`)
  }
  await expect.poll(() => sources.every((source) => source.isPaused())).toBe(true)
  expect(target.listenerCount('drain')).toBe(1)
  await expect
    .poll(
      () => {
        taking.shift()?.()
        return taken.join('').split(';').length - 1
      },
      { interval: 5 },
    )
    .toBe(20)
  expect(target.listenerCount('drain')).toBeLessThanOrEqual(1)
})
