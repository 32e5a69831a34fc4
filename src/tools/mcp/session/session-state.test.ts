import { expect, test } from 'vitest'
import { MillraceError } from '../../../errors/index.ts'
import { redactionOf } from '../config/server-config.ts'
import { SessionErrors } from './session-state.ts'

const errors = new SessionErrors(redactionOf({ command: 'x' }))

test('tells an error with its causes in one line, each word once', () => {
  const refused = new Error('connect ECONNREFUSED')
  const failed = new TypeError('fetch failed', { cause: refused })
  expect(errors.text(failed)).toBe('fetch failed: connect ECONNREFUSED')
  const told = new MillraceError('tool_infra', `it could not be opened: ${errors.text(failed)}`, { cause: failed })
  expect(errors.text(told)).toBe('it could not be opened: fetch failed: connect ECONNREFUSED')
})

test('also what was redacted is said once', () => {
  const careful = new SessionErrors(redactionOf({ command: 'x', env: { KEY: 'sesame-open' } }))
  const cause = new MillraceError('tool_infra', 'no sesame-open here')
  const facts = { server: 'x', generation: 1, elapsedMs: 0 }
  const told = careful.infra(`it failed: ${careful.text(cause)}`, facts, cause)
  expect(careful.text(told)).toBe('it failed: no [redacted] here')
})

test('has words for what is no error, or one without a message', () => {
  expect(errors.text('gone')).toBe('gone')
  expect(errors.text(new Error('', { cause: new Error('why') }))).toBe('why')
})
