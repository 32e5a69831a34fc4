import { expect, test } from 'vitest'
import { limitReached, SessionTally } from './session-memory.ts'
import { orderedId } from './sessions.ts'

test('ids sort by creation time, also within a millisecond', () => {
  const ids = Array.from({ length: 3_000 }, () => orderedId('ses'))
  expect(ids.toSorted()).toEqual(ids)
})

test('ids of one millisecond differ in their random part', () => {
  const secrets = Array.from({ length: 3_000 }, () => orderedId('grp').slice('grp_'.length + 10))
  expect(new Set(secrets).size).toBe(3_000)
  for (const secret of secrets) expect(secret).toMatch(/^[\w-]{12}$/)
})

function used(parts: Partial<SessionTally>): SessionTally {
  return Object.assign(new SessionTally(), parts)
}

test.each([
  { limits: { maxRequests: 3 }, tally: used({ requests: 3 }), running: 0, code: 'budget_exhausted' },
  { limits: { maxRequests: 3 }, tally: used({ requests: 1 }), running: 2, code: 'overloaded' },
  { limits: { maxTokens: 10 }, tally: used({ tokens: 10 }), running: 0, code: 'budget_exhausted' },
  { limits: { maxCost: 0.5 }, tally: used({ cost: 0.6 }), running: 0, code: 'budget_exhausted' },
  { limits: { maxConcurrent: 2 }, tally: used({}), running: 2, code: 'overloaded' },
])('a limit that is reached is named: $limits, $code', ({ limits, tally, running, code }) => {
  const error = limitReached(limits, tally, running)
  expect(error?.code).toBe(code)
  expect(error?.data).toMatchObject({ status: 429, limit: Object.keys(limits)[0] })
})

test('below its limits a session accepts requests', () => {
  const limits = { maxRequests: 3, maxTokens: 10, maxCost: 1, maxConcurrent: 2 }
  expect(limitReached(limits, used({ requests: 1, tokens: 9, cost: 0.9 }), 1)).toBeUndefined()
  expect(limitReached({}, used({ requests: 1e6, tokens: 1e9, cost: 1e6 }), 1e4)).toBeUndefined()
})

test('a tally counts only complete and lost samples', () => {
  const facts = { model: 'm', backend: 'b', tries: 1, ms: 1, waitMs: 0 }
  const usage = { calls: 1, input: 5, cachedInput: 0, output: 3, reasoning: 0 }
  const tally = new SessionTally()
  tally.add({})
  tally.add({ call: { ...facts, usage, cost: 0.25, finishReason: 'stop' } })
  tally.add({ discarded: { ...facts, usage, cost: null, why: 'truncated' } })
  expect(tally).toMatchObject({
    requests: 2,
    tokens: 6,
    cost: 0.25,
    isCostPartial: true,
    interactions: 1,
    discarded: 1,
  })
})
