import { expect, test } from 'vitest'
import { placeOfError } from './place-of-error.ts'

function errorWith(...frames: readonly string[]): Error {
  const error = new Error('boom')
  error.stack = ['Error: boom', ...frames.map((frame) => `    at ${frame}`)].join('\n')
  return error
}

const own = new URL('raced.ts', import.meta.url).href

test.each([
  ['an ES module', ['run (file:///home/me/my%20tools/tools.ts:4:9)'], '/home/me/my tools/tools.ts:4'],
  ['a CommonJS module', ['Object.run (/home/me/old tools/a.cjs:7:1)'], '/home/me/old tools/a.cjs:7'],
  ['a folder in brackets', ['run (file:///home/me/(app)/a.ts:4:9)'], '/home/me/(app)/a.ts:4'],
  ['a frame without a name', ['async file:///home/me/a.ts:12:3'], '/home/me/a.ts:12'],
  [
    'neither Node, packages nor Millrace',
    [
      'process.processTicksAndRejections (node:internal/process/task_queues:103:5)',
      'parse (file:///home/me/node_modules/zod/index.js:1:1)',
      `raced (${own}:3:3)`,
      'reward (file:///home/me/a.ts:5:1)',
    ],
    '/home/me/a.ts:5',
  ],
  ['nowhere', ['new Promise (<anonymous>)', 'node:internal/timers:5:1', 'Promise.all (index 0)'], undefined],
])('finds the place in %s', (_, frames, place) => {
  expect(placeOfError(errorWith(...frames))).toBe(place)
})

test('a message is no frame, however much it looks like one', () => {
  const quoted = '    at run (file:///home/them/b.ts:1:1)\n    at file:///100%.csv:3:4\n'
  const error = errorWith('run (file:///home/me/a.ts:4:9)')
  error.stack = String(error.stack).replace('boom', quoted)
  error.message = quoted
  expect(placeOfError(error)).toBe('/home/me/a.ts:4')
})

test('a long message takes no longer than a short one', () => {
  // Where the time grows with the square of the length, this takes minutes.
  expect(placeOfError(new Error(' /a'.repeat(300_000)))).toBeUndefined()
})

test('a stack that makes no sense has no place', () => {
  expect(placeOfError(errorWith('run (file:///a%2Fb.ts:1:1)'))).toBeUndefined()
  const hostile = new Error('boom')
  Object.defineProperty(hostile, 'stack', {
    get() {
      throw new Error('no stack')
    },
  })
  expect(placeOfError(hostile)).toBeUndefined()
})

test('what is no error has none', () => {
  expect(placeOfError('boom')).toBeUndefined()
  expect(placeOfError(Object.assign(new Error('boom'), { stack: [] }))).toBeUndefined()
})
