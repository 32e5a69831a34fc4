import { expect, test } from 'vitest'
import { neverConnected, sseFailure, statusFailure } from './call-failure.ts'

test.each([
  [404, 'no', 'lost', false],
  [400, 'Bad Request: No valid session ID provided', 'lost', false],
  [400, 'bad', 'refused', false],
  [401, '', 'refused', false],
  [429, '', 'refused', false],
  [503, '', 'refused', false],
  [500, '', 'refused', true],
  [504, '', 'refused', true],
  [202, '', 'refused', true],
  [307, '', 'refused', false],
] as const)('status %d (%s) means that the call was %s; may have run: %s', (status, page, kind, mayHaveRun) => {
  expect(statusFailure(status, page)).toMatchObject({ kind, mayHaveRun })
  expect(sseFailure(new Error(`Error POSTing to endpoint (HTTP ${status}): ${page}`))).toMatchObject({
    kind,
    mayHaveRun,
  })
})

test('a server that was never reached is distinguished from a lost one', () => {
  const refused = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' })
  expect(neverConnected(new TypeError('fetch failed', { cause: refused }))).toBe(true)
  const reset = Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' })
  expect(neverConnected(new TypeError('fetch failed', { cause: reset }))).toBe(false)
  expect(sseFailure(new TypeError('fetch failed', { cause: reset }))).toMatchObject({ kind: 'cut', mayHaveRun: true })
  expect(sseFailure(new TypeError('fetch failed', { cause: refused }))).toMatchObject({
    kind: 'lost',
    mayHaveRun: false,
  })
})

test('a busy server is asked again after its delay, or a default one', () => {
  expect(statusFailure(429, '', 3000)).toMatchObject({ retryAfterMs: 3000 })
  expect(statusFailure(503, '')).toMatchObject({ retryAfterMs: 1000 })
  expect(statusFailure(500, '', 3000)).not.toHaveProperty('retryAfterMs')
})
