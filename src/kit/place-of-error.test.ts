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

test('what is no error has none', () => {
  expect(placeOfError('boom')).toBeUndefined()
  expect(placeOfError(Object.assign(new Error('boom'), { stack: [] }))).toBeUndefined()
})
