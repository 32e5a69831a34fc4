import { join } from 'node:path'
import { expect, test } from 'vitest'
import { MillraceError } from '../errors/index.ts'
import { describeThrown } from './describe-thrown.ts'

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
])('takes %s', (_, thrown, kind, message) => {
  expect(describeThrown(thrown)).toEqual({ kind, place: undefined, message })
})
