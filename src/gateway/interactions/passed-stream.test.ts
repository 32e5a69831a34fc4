import { expect, test } from 'vitest'
import type { ReplyEvent } from '../../inference/index.ts'
import { PassedStream } from './_passed-stream.ts'

const event = (data: string, isEnd = false): ReplyEvent => ({
  data,
  document: data === '[DONE]' ? undefined : (JSON.parse(data) as object),
  deltas: [],
  isEnd,
})

const finish = '{"choices":[{"index":0,"finish_reason":"stop"}]}'

test('no client is told of an end before there is one', () => {
  const stream = new PassedStream('chat', undefined)
  expect(stream.event(event('{"choices":[]}'))).toBe('data: {"choices":[]}\n\n')
  // A server that stops sending says this, too, whether or not its reply was complete.
  expect(stream.event(event('[DONE]'))).toBe('')
  expect(stream.event(event(finish, true))).toBe('')
  expect(stream.end()).toBe(`data: ${finish}\n\ndata: [DONE]\n\n`)
})

test('an event that was written over several lines is one line', () => {
  const stream = new PassedStream('chat', undefined)
  expect(stream.event(event('{"choices":\n[]\r}'))).toBe('data: {"choices":[]}\n\n')
})

test('a type that is no name does not become a line of its own', () => {
  const stream = new PassedStream('responses', undefined)
  const odd = '{"type":"a\\ndata: {}"}'
  expect(stream.event(event(odd))).toBe(`data: ${odd}\n\n`)
  expect(stream.event(event('{"type":"response.created"}'))).toBe(
    'event: response.created\ndata: {"type":"response.created"}\n\n',
  )
})
