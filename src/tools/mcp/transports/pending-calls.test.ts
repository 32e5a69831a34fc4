import { expect, test } from 'vitest'
import { AbortSource } from '../../../kit/index.ts'
import { PendingCall, PendingCalls } from './pending-calls.ts'

const { signal } = new AbortSource()

function pendingCall(): PendingCall {
  const call = { tool: 't', arguments: {}, signal }
  const pending = new PendingCall(call, 60_000, () => {})
  pending.settle({ kind: 'aborted' })
  return pending
}

test('a pending call is found by id while other calls are added and removed', () => {
  const calls = new PendingCalls()
  const stays = Array.from({ length: 3 }, pendingCall)
  for (const call of stays) calls.add(call, 'x')
  const passing = pendingCall()
  calls.add(passing, 'x')
  expect(calls.find(passing.id)).toBe(passing)
  expect([calls.take(passing), calls.take(passing)]).toEqual([true, false])
  expect(calls.find(passing.id)).toBeUndefined()
  for (const call of stays) expect(calls.find(call.id)).toBe(call)
  expect(calls.all()).toEqual(stays)
})

test('ids of the transport are distinguished from those of the SDK', () => {
  const calls = new PendingCalls()
  const call = pendingCall()
  calls.add(call, 'x')
  expect(PendingCalls.isOurs(call.id)).toBe(true)
  expect([0, 12_345, '1073741824', undefined].some((id) => PendingCalls.isOurs(id))).toBe(false)
})

test('calls over the limit are refused', () => {
  const calls = new PendingCalls()
  const call = pendingCall()
  for (let count = 0; count < 65_536; count += 1) calls.add(call, 'x')
  expect(() => calls.add(call, 'x')).toThrow("calls already wait for server 'x'")
})
