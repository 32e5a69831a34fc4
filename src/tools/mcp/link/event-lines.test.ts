import { expect, test } from 'vitest'
import { EventLines } from './_event-lines.ts'

function eventsOf(maxBytes = 1000) {
  const events: string[] = []
  const lines = new EventLines({ maxBytes, onEvent: (data) => events.push(data), tooLong: () => new Error('too long') })
  const push = (stream: string): void => stream.split('\n').forEach((line) => lines.push(line))
  return { lines, events, push }
}

test('puts events together and remembers the last id and when to come again', () => {
  const { lines, events, push } = eventsOf()
  push(
    ': hello\nevent: message\nid: 7\ndata: {"a":\ndata:1}\n\nid: 8\r\ndata: \r\n\r\nretry: 5\nretry: soon\ndatabase: x\ndata: end\n\ndata: cut',
  )
  expect(events).toEqual(['{"a":\n1}', 'end'])
  expect([lines.lastId, lines.retryMs]).toEqual(['8', 5])
})

test('an event of many lines is bounded as a whole, in bytes; each event counts for itself', () => {
  const { events, push } = eventsOf(9)
  push('data: 1234\ndata: 5678\n\ndata: 1234\ndata: 5678\n\n')
  expect(events).toHaveLength(2)
  expect(() => push('data: 1234\ndata: 5678\ndata:')).toThrow('too long')
  expect(() => push('\ndata: üüü\ndata: üü')).toThrow('too long')
})
