import { join } from 'node:path'
import { expect, test } from 'vitest'
import { MillraceError } from '../../errors/index.ts'
import { describeThrown, errorLocation, thrownBy } from './user-errors.ts'

test('the error names the user function and shows the beginning of a long message', () => {
  expect(thrownBy('setup', 'boom', 'setup_failed')).toMatchObject({
    code: 'setup_failed',
    rawMessage: 'setup threw a value of type string: boom',
  })
  const { rawMessage } = thrownBy('setup', 'x'.repeat(5_000_000), 'setup_failed')
  expect(rawMessage).toMatch(/^setup threw a value of type string: x{16384}… \(4983616 characters more\)$/)
})

function thrownAt(path: string): Error {
  const error = new TypeError('no buttons')
  error.stack = `TypeError: no buttons\n    at run (${path}:4:9)`
  return error
}

test('names the class, the place from here, and the message', () => {
  expect(describeThrown(thrownAt(join(process.cwd(), 'envs/a.ts')))).toEqual({
    kind: 'TypeError',
    place: 'envs/a.ts:4',
    message: 'no buttons',
  })
  expect(describeThrown(thrownAt('/elsewhere/a.ts')).place).toBe('/elsewhere/a.ts:4')
})

test.each([
  ['a text', 'boom', 'a value of type string', 'boom'],
  ['null', null, 'a value of type null', 'null'],
  ['an error of ours', new MillraceError('env_invalid', 'no such metric'), undefined, 'no such metric'],
])('describes %s', (_, thrown, kind, message) => {
  expect(describeThrown(thrown)).toEqual({ kind, place: undefined, message })
})

function errorWith(...frames: readonly string[]): Error {
  const error = new Error('boom')
  error.stack = ['Error: boom', ...frames.map((frame) => `    at ${frame}`)].join('\n')
  return error
}

const own = new URL('user-errors.ts', import.meta.url).href

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
])('finds the location in %s', (_, frames, place) => {
  expect(errorLocation(errorWith(...frames))).toBe(place)
})

test('a message that looks like a stack frame is not taken for one', () => {
  const quoted = '    at run (file:///home/them/b.ts:1:1)\n    at file:///100%.csv:3:4\n'
  const error = errorWith('run (file:///home/me/a.ts:4:9)')
  error.stack = String(error.stack).replace('boom', quoted)
  error.message = quoted
  expect(errorLocation(error)).toBe('/home/me/a.ts:4')
})

test('a long message is read as fast as a short one', () => {
  // Where the time grows with the square of the length, this takes minutes.
  expect(errorLocation(new Error(' /a'.repeat(300_000)))).toBeUndefined()
})

test('an unreadable stack has no location', () => {
  expect(errorLocation(errorWith('run (file:///a%2Fb.ts:1:1)'))).toBeUndefined()
  const hostile = new Error('boom')
  Object.defineProperty(hostile, 'stack', {
    get() {
      throw new Error('no stack')
    },
  })
  expect(errorLocation(hostile)).toBeUndefined()
})

test('a thrown value that is not an error has no location', () => {
  expect(errorLocation('boom')).toBeUndefined()
  expect(errorLocation(Object.assign(new Error('boom'), { stack: [] }))).toBeUndefined()
})
