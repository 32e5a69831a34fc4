import { expect, test } from 'vitest'
import { MillraceError } from '../../../errors/index.ts'
import { redactionOf } from '../config/server-config.ts'
import { SessionErrors } from './session-state.ts'

const errors = new SessionErrors(redactionOf({ command: 'x' }))

test('the text of an error has its causes in one line, without repetition', () => {
  const refused = new Error('connect ECONNREFUSED')
  const failed = new TypeError('fetch failed', { cause: refused })
  expect(errors.text(failed)).toBe('fetch failed: connect ECONNREFUSED')
  const told = new MillraceError('tool_infra', `it could not be opened: ${errors.text(failed)}`, { cause: failed })
  expect(errors.text(told)).toBe('it could not be opened: fetch failed: connect ECONNREFUSED')
})

test('redacted text is not repeated either', () => {
  const careful = new SessionErrors(redactionOf({ command: 'x', env: { KEY: 'sesame-open' } }))
  const cause = new MillraceError('tool_infra', 'no sesame-open here')
  const facts = { server: 'x', generation: 1, elapsedMs: 0 }
  const told = careful.infra(`it failed: ${careful.text(cause)}`, facts, cause)
  expect(careful.text(told)).toBe('it failed: no [redacted] here')
})

test('values that are not errors, and errors without a message, have a text', () => {
  expect(errors.text('gone')).toBe('gone')
  expect(errors.text(new Error('', { cause: new Error('why') }))).toBe('why')
})
