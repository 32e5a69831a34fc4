import { describe, expect, it, vi } from 'vitest'
import { FakeStream } from '../_testing/fake-terminal.ts'
import { Output } from './output.ts'
import { SlowProgress } from './slow-progress.ts'

function shownAfter(ms: number, stream: FakeStream): string {
  vi.useFakeTimers()
  try {
    using output = new Output(stream, {})
    using progress = new SlowProgress(output, 'reading results')
    vi.advanceTimersByTime(ms)
    for (let count = 0; count < 2560; count += 1) progress.add()
  } finally {
    vi.useRealTimers()
  }
  return stream.text
}

describe('SlowProgress', () => {
  it('shows itself on a terminal once it takes long, and is gone at the end', () => {
    const text = shownAfter(2100, new FakeStream({ columns: 80 }))
    expect(text).toContain('reading results: 256…')
    expect(text.endsWith('\r\u001b[K')).toBe(true)
  })

  it('shows nothing of what is quick, and nothing where there is no terminal', () => {
    expect(shownAfter(100, new FakeStream({ columns: 80 }))).toBe('')
    expect(shownAfter(60_000, new FakeStream())).toBe('')
  })
})
