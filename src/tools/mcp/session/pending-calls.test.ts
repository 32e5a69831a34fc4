import { expect, test } from 'vitest'
import { AbortSource } from '../../../kit/index.ts'
import { PendingCall } from '../link/pending-call.ts'
import { PendingCalls } from './_pending-calls.ts'

const { signal } = new AbortSource()

function pendingCall(): PendingCall {
  const call = { tool: 't', arguments: {}, signal }
  const pending = new PendingCall({ giveUp: () => {} }, call, 60_000)
  pending.settle({ kind: 'aborted' })
  return pending
}

test('finds calls by id while others come and go, also when it has grown', () => {
  const calls = new PendingCalls()
  const stays = Array.from({ length: 40 }, pendingCall)
  for (const call of stays) calls.add(call)
  // Enough to come around to the slots of those that stay, many times.
  for (let round = 0; round < 2000; round += 1) {
    const passing = pendingCall()
    calls.add(passing)
    expect(calls.find(passing.id)).toBe(passing)
    expect(calls.take(passing)).toBe(true)
    expect(calls.take(passing)).toBe(false)
    expect(calls.find(passing.id)).toBeUndefined()
  }
  expect(calls.size).toBe(40)
  expect(new Set(stays.map(({ id }) => id)).size).toBe(40)
  for (const call of stays) expect(calls.find(call.id)).toBe(call)
  expect(calls.all()).toHaveLength(40)
})

test('knows its own ids from those of the SDK', () => {
  const calls = new PendingCalls()
  const call = pendingCall()
  calls.add(call)
  expect(PendingCalls.isOurs(call.id)).toBe(true)
  expect([0, 12_345, '1073741824', undefined].some((id) => PendingCalls.isOurs(id))).toBe(false)
})

test('refuses to hold more calls than any session should have', () => {
  const calls = new PendingCalls()
  const call = pendingCall()
  for (let count = 0; count < 65_535; count += 1) calls.add(call)
  calls.checkRoom('x')
  calls.add(call)
  expect(() => calls.checkRoom('x')).toThrow("calls wait for server 'x' already")
})
