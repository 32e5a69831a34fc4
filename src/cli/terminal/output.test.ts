import { describe, expect, it, test, vi } from 'vitest'
import { fakeProcess, FakeStream } from '../../../test/support/cli/fake-terminal.ts'
import { openIo } from './io.ts'
import { UserCodeOutput, Output, DelayedProgress } from './output.ts'

const failing = (code: string) => Object.assign(new Error(`write ${code}`), { code })

test('a closed terminal gets no further output and stops no command', () => {
  const stream = new FakeStream({ columns: 80 })
  using output = new Output(stream, {})
  void output.line('before')
  stream.emit('error', failing('EIO'))
  void output.line('after')
  expect(stream.lines).toEqual(['before'])
  expect(output.readerGone.aborted).toBe(false)
})

test('a closed pipe gets no further output, and the writer is notified', () => {
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

describe('UserCodeOutput', () => {
  it('collects whole lines of user code, and leaves the stream to the command', async () => {
    const { stdout, stderr, ...parts } = fakeProcess()
    using io = openIo({ ...parts, stdout, stderr })
    const lines: string[] = []
    const foreign = new UserCodeOutput([io.stdout], (line) => lines.push(line))
    void io.stdout.line('ours')
    stdout.write('the')
    stdout.write(Buffer.from('irs\nsecond\nand '))
    await new Promise<void>((resolve) => {
      stdout.write('the rest', () => resolve())
    })
    stderr.write('not diverted\n')
    expect(lines).toEqual(['theirs', 'second'])
    foreign[Symbol.dispose]()
    foreign[Symbol.dispose]()
    expect(lines).toEqual(['theirs', 'second', 'and the rest'])
    stdout.write('to the stream again\n')
    expect(stdout.text).toBe('ours\nto the stream again\n')
    expect(stderr.text).toBe('not diverted\n')
  })

  it('limits the length of a line without an end', () => {
    const { stdout, ...parts } = fakeProcess()
    using io = openIo({ ...parts, stdout })
    const lines: string[] = []
    using _foreign = new UserCodeOutput([io.stdout], (line) => lines.push(line))
    for (let count = 0; count < 10; count += 1) stdout.write('x'.repeat(10_000))
    expect(lines).toEqual(['x'.repeat(70_000)])
  })
})

function shownAfter(ms: number, stream: FakeStream): string {
  vi.useFakeTimers()
  try {
    using output = new Output(stream, {})
    using progress = new DelayedProgress(output, 'reading results')
    vi.advanceTimersByTime(ms)
    for (let count = 0; count < 2560; count += 1) progress.add()
  } finally {
    vi.useRealTimers()
  }
  return stream.text
}

describe('DelayedProgress', () => {
  it('appears on a terminal after a delay, and is removed at the end', () => {
    const text = shownAfter(2100, new FakeStream({ columns: 80 }))
    expect(text).toContain('reading results: 256…')
    expect(text.endsWith('\r\u001b[K')).toBe(true)
  })

  it('shows nothing for quick work, or without a terminal', () => {
    expect(shownAfter(100, new FakeStream({ columns: 80 }))).toBe('')
    expect(shownAfter(60_000, new FakeStream())).toBe('')
  })
})
