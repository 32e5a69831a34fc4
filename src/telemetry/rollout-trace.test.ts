import { expect, test } from 'vitest'
import type { RolloutJob } from '../rollout/index.ts'
import { RolloutTrace, traceIdOf } from './rollout-trace.ts'

const job: RolloutJob = { id: '4-1', attempt: 2, sample: 1, task: { index: 4, id: 'four', data: {} }, seed: 1 }
const traced = (of: RolloutJob, parent?: RolloutTrace): RolloutTrace =>
  new RolloutTrace({}, { run: 'night', id: of.id, job: of, parent })

test('the trace id is derived from run, rollout and attempt', () => {
  expect(traceIdOf('night', '4-1', 2)).toMatch(/^[0-9a-f]{32}$/)
  expect(traced(job).traceId).toBe(traceIdOf('night', '4-1', 2))
  expect(traced(job).spanId).toBe(traced(job).spanId)
  const others = [traceIdOf('day', '4-1', 2), traceIdOf('night', '4-2', 2), traceIdOf('night', '4-1', 3)]
  expect(new Set([traceIdOf('night', '4-1', 2), ...others]).size).toBe(4)
})

test('the span of a child is in the trace of its parent and below it', () => {
  const parent = traced(job)
  const child = traced({ ...job, id: '4-1.x' }, parent)
  expect(child).toMatchObject({ traceId: parent.traceId, parentSpanId: parent.spanId })
  expect(child.spanId).not.toBe(parent.spanId)
})

test('a resumed rollout has new spans in the same trace', () => {
  const before = traced(job)
  const after = traced({ ...job, recording: { purpose: 'resume', sessions: {} } })
  expect(after.traceId).toBe(before.traceId)
  expect(after.spanId).not.toBe(before.spanId)
  expect(after.nextSpanId()).not.toBe(before.nextSpanId())
})

test('span ids are well formed and unique', () => {
  const trace = traced(job)
  const ids = Array.from({ length: 1000 }, () => trace.nextSpanId())
  expect(new Set([trace.spanId, ...ids]).size).toBe(1001)
  for (const id of ids) expect(id).toMatch(/^[0-9a-f]{16}$/)
})
