import { expect, test } from 'vitest'
import { decodeBatch, encodeBatch, entryBytes, type QueuedEntry } from './_batch-codec.ts'
import type { JournalEntry } from './journal-entry.ts'
import { nodeEntry, rolloutEntries } from '../../test/store/_fixtures.ts'

const throughTheClone = (entries: readonly QueuedEntry[]): QueuedEntry[] => {
  const batch = encodeBatch(entries)
  return decodeBatch(structuredClone(batch, { transfer: batch.tokens ? [batch.tokens] : [] }))
}

test('every kind of entry arrives as it was', () => {
  const entries: QueuedEntry[] = [
    ...rolloutEntries(7),
    { kind: 'task', index: 8, id: 'eight', digest: 'd8', row: '{"target":8}' },
    { kind: 'event', rollout: null, attempt: 0, name: 'limit-change', at: 5, data: '{"from":4,"to":2}' },
    { kind: 'attempt-start', rollout: '7-0.x', attempt: 2, parent: '7-0', task: 7, sample: 0, at: 9 },
    { kind: 'session-start', session: 's', group: 'g', tenant: 't', keyDigest: 'k', at: 1, data: '{"taskId":"x"}' },
    { kind: 'reward', session: 's', node: 3, value: -0.5, at: 2 },
    { kind: 'reward', session: 's', node: null, value: 1, at: 3 },
    { kind: 'session-end', session: 's', at: 4, why: 'expired' },
    { kind: 'heard', session: 's', node: 3, isHeard: false },
    { kind: 'version', session: 's', node: 3, version: '7' },
    { kind: 'frame', number: 7, bytes: Uint8Array.of(1, 2, 3) },
    { kind: 'frame', number: 8, bytes: Uint8Array.of(4) },
  ]
  expect(throughTheClone(entries)).toEqual(entries)
})

test('an entry of a kind that nobody knows is not taken for another', () => {
  const { values, ...batch } = encodeBatch(rolloutEntries(7).slice(-1))
  expect(() => decodeBatch({ ...batch, values: [99, ...values.slice(1)] })).toThrow(
    expect.objectContaining({ code: 'internal', message: expect.stringContaining('no entry of kind 99') }),
  )
})

test('token arrays arrive exactly, and stay with the caller', () => {
  const large = new Int32Array(1_000_000).fill(9)
  const ids = large.subarray(500, 503)
  const tokens = { ids, logprobs: Float32Array.of(-0.5, -1.25, -Infinity), version: '3' }
  const entries: JournalEntry[] = [
    { ...nodeEntry({ rollout: 'a', seq: 0 }), ...tokens, promptIds: Int32Array.of(1, 2) } as JournalEntry,
    nodeEntry({ rollout: 'a', seq: 1 }),
    { ...nodeEntry({ rollout: 'a', seq: 2 }), ids: Int32Array.of(-1), logprobs: Float32Array.of(0) } as JournalEntry,
  ]
  const batch = encodeBatch(entries)
  expect(batch.tokens?.byteLength).toBe((2 + 3 + 3 + 1 + 1) * 4)
  expect(throughTheClone(entries)).toEqual(entries)
  expect(large).toHaveLength(1_000_000)
})

test('empty token arrays are still there', () => {
  const entry = { ...nodeEntry({ rollout: 'a', seq: 0 }), ids: new Int32Array(), logprobs: new Float32Array() }
  expect(throughTheClone([entry as JournalEntry])).toEqual([entry])
})

test('the size of an entry counts its text, messages and tokens', () => {
  const plain = entryBytes(nodeEntry({ rollout: 'a', seq: 0, message: '{}' }))
  expect(entryBytes(nodeEntry({ rollout: 'a', seq: 0, message: '{}'.padEnd(1002) }))).toBe(plain + 1000)
  const start = { kind: 'session-start', session: 's', group: 'g', tenant: 't', keyDigest: 'k', at: 1 } as const
  expect(entryBytes({ ...start, data: 'x'.repeat(3000) })).toBeGreaterThan(3000)
  const task = { kind: 'task', index: 1, id: '1', digest: 'd' } as const
  expect(entryBytes({ ...task, row: 'x'.repeat(4000) })).toBe(entryBytes(task) + 4000)
  const [end] = rolloutEntries(1, { messages: ['x'.repeat(5000)] }).slice(-1)
  expect(entryBytes(end as JournalEntry)).toBeGreaterThan(5000)
})
