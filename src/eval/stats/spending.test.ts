import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { applyAll } from '../../../test/support/store/apply-entries.ts'
import { nodeEntry, rolloutEntries, temporaryFolder } from '../../../test/support/store/fixtures.ts'
import { emptyUsage } from '../../schema/index.ts'
import { RunReader, type JournalEntry } from '../../store/index.ts'
import { RunSpending, unacceptedSpending } from './spending.ts'

const spent = { usage: { ...emptyUsage(), calls: 1, output: 10 }, judgeUsage: emptyUsage(), cost: 0.5 }
const meta = JSON.stringify({ call: { usage: spent.usage, cost: spent.cost } })

/** An attempt that made two calls and never came to its end. */
function cutOff(rollout: string, attempt: number): JournalEntry[] {
  return [
    { kind: 'attempt-start', rollout, attempt, parent: null, task: 9, sample: 0, at: 1 },
    ...[0, 1].map((seq) => nodeEntry({ rollout, attempt, seq, meta })),
  ]
}

test('attempts without a result cost what their journal records', () => {
  using folder = temporaryFolder()
  applyAll(folder.path, [
    ...rolloutEntries(0, { record: spent }),
    // Lost, then answered.
    ...cutOff('1-0', 1),
    ...rolloutEntries(1, { attempt: 2, record: spent }),
    // Cut off.
    ...cutOff('3-0', 1),
  ])
  using reader = RunReader.open(folder.path)
  const { discarded, unfinished } = unacceptedSpending(reader)
  expect(discarded).toMatchObject({ attempts: 1, usage: { calls: 2, output: 20 }, costUsd: 1 })
  expect(unfinished).toMatchObject({ attempts: 1, usage: { calls: 2, output: 20 }, costUsd: 1 })
})

test('calls of unknown cost are counted, not taken as free', () => {
  using folder = temporaryFolder()
  const unpriced = JSON.stringify({ call: { usage: spent.usage, cost: null } })
  applyAll(folder.path, [
    ...cutOff('3-0', 1),
    ...cutOff('4-0', 1),
    nodeEntry({ rollout: '4-0', attempt: 1, seq: 2, meta: unpriced }),
  ])
  using reader = RunReader.open(folder.path)
  const { discarded, unfinished } = unacceptedSpending(reader)
  expect(discarded).toMatchObject({ attempts: 0, costUsd: 0, costUnknown: 0 })
  expect(unfinished).toMatchObject({ attempts: 2, costUsd: 1, costUnknown: 1 })
})

test('the judge calls of a cut-off attempt are part of its cost, also those of a child', () => {
  using folder = temporaryFolder()
  const asked = (rollout: string, content = 'ok'): JournalEntry => {
    const verdict = { request: 'q', model: 'm', reply: { role: 'assistant', content }, ...spent }
    return { kind: 'event', rollout, attempt: 1, name: 'judge-call', at: 1, data: JSON.stringify(verdict) }
  }
  applyAll(folder.path, [
    ...cutOff('3-0', 1),
    { kind: 'attempt-start', rollout: '3-0.a', attempt: 1, parent: '3-0', task: 9, sample: 0, at: 1 },
    asked('3-0'),
    // Too long for its row: it is in a file.
    asked('3-0.a', 'o'.repeat(100_000)),
    asked('4-0'),
  ])
  using reader = RunReader.open(folder.path)
  const { unfinished } = unacceptedSpending(reader)
  expect(unfinished).toMatchObject({ attempts: 1, usage: { calls: 4, output: 40 }, costUsd: 2 })
  rmSync(join(folder.path, 'blobs'), { recursive: true })
  // What cannot be read is damaged, and costs nobody knows what.
  expect(() => reader.spending('3-0', 1)).toThrow('a message of 3-0 cannot be read')
  expect(unacceptedSpending(reader).unfinished).toMatchObject({ attempts: 1, costUsd: 0, costUnknown: 1 })
})

test('the cost of an attempt before it was cut off is part of its final cost', async () => {
  using folder = temporaryFolder()
  applyAll(folder.path, [...cutOff('3-0', 1), ...cutOff('4-0', 1)])
  using reader = RunReader.open(folder.path)
  const spending = new RunSpending()
  await spending.addUnaccepted(reader)
  expect(spending.costUsd).toBe(2)
  spending.add({ id: '3-0', attempt: 1, cost: 1.25 })
  expect(spending.costUsd).toBe(2.25)
  // This one could not go on and started over.
  spending.add({ id: '4-0', attempt: 2, cost: 1 })
  expect(spending.costUsd).toBe(3.25)
})

test('an attempt keeps how many of its calls returned all their tokens', () => {
  using folder = temporaryFolder()
  const calls = [1, 0, 1].map((captured, seq) => {
    const call = JSON.stringify({ call: { usage: { ...spent.usage, captured }, cost: 0.5 } })
    return nodeEntry({ rollout: '3-0', attempt: 1, seq: 2 + seq, meta: call })
  })
  applyAll(folder.path, [...cutOff('3-0', 1), ...calls, ...cutOff('4-0', 1)])
  using reader = RunReader.open(folder.path)
  expect(reader.spending('3-0', 1).usage).toMatchObject({ calls: 5, captured: 2 })
  expect(reader.spending('4-0', 1).usage).not.toHaveProperty('captured')
})
