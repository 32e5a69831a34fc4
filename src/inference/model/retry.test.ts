import { describe, expect, test } from 'vitest'
import { errorCodes, type ErrorCode } from '../../errors/index.ts'
import { retryAfterMs } from '../../http/retry-after.ts'
import { maxRetryAfterMs, retryDelayMs, retryRule, retryTable } from './retry.ts'

describe('the retry table', () => {
  test('has a row for every backend code, in agreement with errorCodes', () => {
    const codes = Object.keys(errorCodes).filter((code) => code.startsWith('model_') || code === 'context_length')
    expect(Object.keys(retryTable).sort()).toEqual(codes.sort())
    for (const [code, rule] of Object.entries(retryTable)) {
      expect(rule.retried, code).toBe(errorCodes[code as ErrorCode].retryable)
    }
  })

  test('never retries a wrong key, model name, request or context length', () => {
    for (const code of ['model_auth', 'model_not_found', 'model_rejected', 'context_length'] as const) {
      expect(retryTable[code]).toMatchObject({ retried: false, evidence: 'answered' })
    }
  })

  test('reduces concurrency for 429 only', () => {
    const cutting = Object.entries(retryTable).filter(([, rule]) => rule.cutsConcurrency)
    expect(cutting.map(([code]) => code)).toEqual(['model_rate_limited'])
  })

  test('excuses no error that a request may have caused itself', () => {
    const excusable = Object.entries(retryTable).filter(([, rule]) => rule.counts === 'unless-parked')
    expect(excusable.map(([code]) => code).sort()).toEqual(['model_connect', 'model_overloaded', 'model_rate_limited'])
  })

  test('does not retry errors from elsewhere than a backend', () => {
    expect(retryRule('internal')).toMatchObject({ retried: false, evidence: 'unclear' })
  })
})

describe('the retry delay', () => {
  const delay = (failures: number, asked?: number, draw = 1): number =>
    retryDelayMs(retryTable.model_overloaded, { failures, retryAfterMs: asked, random: () => draw })

  test('doubles up to a limit, with jitter below', () => {
    expect([1, 2, 3, 4].map((failures) => delay(failures))).toEqual([500, 1000, 2000, 4000])
    expect(delay(1, undefined, 0)).toBe(250)
    expect(delay(30)).toBe(30_000)
  })

  test('is the delay that the server asked for, plus a little', () => {
    expect(delay(1, 2000, 0)).toBe(2000)
    expect(delay(1, 2000, 1)).toBe(2200)
    expect(delay(1, 3_600_000, 0)).toBe(maxRetryAfterMs)
    expect(delay(3, 0, 1)).toBeGreaterThan(delay(1, 0, 1))
  })
})

test('the formats of Retry-After are read', () => {
  const now = Date.parse('Tue, 15 Nov 2026 10:00:00 GMT')
  expect(retryAfterMs({ 'retry-after': '2' }, now)).toBe(2000)
  expect(retryAfterMs({ 'retry-after': '0.5' }, now)).toBe(500)
  expect(retryAfterMs({ 'retry-after': 'Tue, 15 Nov 2026 10:00:30 GMT' }, now)).toBe(30_000)
  expect(retryAfterMs({ 'retry-after': 'Tue, 15 Nov 2026 09:00:00 GMT' }, now)).toBe(0)
  expect(retryAfterMs({ 'retry-after-ms': '150', 'retry-after': '9' }, now)).toBe(150)
  expect(retryAfterMs({ 'retry-after': 'soon' }, now)).toBeUndefined()
  expect(retryAfterMs({}, now)).toBeUndefined()
})
