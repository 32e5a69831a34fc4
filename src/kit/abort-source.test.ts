import { expect, test } from 'vitest'
import { AbortSource, offAbort, onAbort, type AbortListener } from './abort-source.ts'

class Counting implements AbortListener {
  count = 0

  handleEvent(): void {
    this.count += 1
  }
}

const makers = [
  ['a source', () => new AbortSource()],
  ['a plain controller', () => new AbortController()],
] as const

test.each(makers)('%s tells those who listen, once', (_name, make) => {
  const source = make()
  const [stays, leaves, standard] = [new Counting(), new Counting(), new Counting()]
  onAbort(source.signal, stays)
  onAbort(source.signal, leaves)
  source.signal.addEventListener('abort', standard)
  offAbort(source.signal, leaves)
  source.abort('first')
  source.abort('second')
  expect([stays.count, leaves.count, standard.count]).toEqual([1, 0, 1])
  expect(source.signal.reason).toBe('first')
})

test('listeners may leave while they are told', () => {
  const source = new AbortSource()
  const heard: string[] = []
  const first: AbortListener = {
    handleEvent: () => {
      heard.push('first')
      offAbort(source.signal, first)
    },
  }
  onAbort(source.signal, first)
  onAbort(source.signal, { handleEvent: () => heard.push('second') })
  source.abort('end')
  expect(heard).toEqual(['first', 'second'])
})
