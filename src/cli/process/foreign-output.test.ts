import { describe, expect, it } from 'vitest'
import { fakeProcess } from '../_testing/fake-terminal.ts'
import { ForeignOutput } from './foreign-output.ts'
import { openIo } from './io.ts'

describe('ForeignOutput', () => {
  it('takes whole lines that others write, and leaves the command its stream', async () => {
    const { stdout, stderr, ...parts } = fakeProcess()
    using io = openIo({ ...parts, stdout, stderr })
    const lines: string[] = []
    const foreign = new ForeignOutput([io.stdout], (line) => lines.push(line))
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

  it('holds no more than so much of a line that never ends', () => {
    const { stdout, ...parts } = fakeProcess()
    using io = openIo({ ...parts, stdout })
    const lines: string[] = []
    using _foreign = new ForeignOutput([io.stdout], (line) => lines.push(line))
    for (let count = 0; count < 10; count += 1) stdout.write('x'.repeat(10_000))
    expect(lines).toEqual(['x'.repeat(70_000)])
  })
})
