import { expect, test } from 'vitest'
import { FakeStream } from '../_testing/fake-terminal.ts'
import { Output } from './output.ts'

const failing = (code: string) => Object.assign(new Error(`write ${code}`), { code })

test('a terminal that was closed is written to no more, and stops nobody', () => {
  const stream = new FakeStream({ columns: 80 })
  using output = new Output(stream, {})
  void output.line('before')
  stream.emit('error', failing('EIO'))
  void output.line('after')
  expect(stream.lines).toEqual(['before'])
  expect(output.readerGone.aborted).toBe(false)
})

test('a reader that left is written to no more, and whoever writes hears of it', () => {
  const stream = new FakeStream()
  using output = new Output(stream, {})
  stream.emit('error', failing('EPIPE'))
  void output.line('after')
  expect(stream.lines).toEqual([])
  expect(output.readerGone.aborted).toBe(true)
})

test('a file that cannot be written is an error', () => {
  const stream = new FakeStream()
  using output = new Output(stream, {})
  stream.emit('error', failing('EIO'))
  expect(() => output.line('after')).toThrow('EIO')
})
