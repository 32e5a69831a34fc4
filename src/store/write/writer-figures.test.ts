import { expect, test } from 'vitest'
import { WriterFigures } from './writer-figures.ts'

test('the lag of a window is the duration of its commits, visible to both threads', () => {
  const seen = new WriterFigures()
  const writer = new WriterFigures(seen.memory)
  for (const ms of [2, 4, 30]) writer.committed(5, ms)
  // Before the end of the window only the sums are known.
  expect(seen.status()).toEqual({ commits: 3, entries: 15, commitMs: 36, slowestCommitMs: 0 })
  writer.endWindow(0.25)
  const { meanMs, p99Ms, maxMs, utilization } = seen.lag()
  expect(meanMs).toBeCloseTo(12, 1)
  expect(maxMs).toBeCloseTo(30, 1)
  expect([p99Ms, utilization]).toEqual([maxMs, 0.25])
  expect(seen.status().slowestCommitMs).toBe(maxMs)
})

test('a window without commits has no lag', () => {
  const figures = new WriterFigures()
  figures.committed(1, 3)
  figures.endWindow(0.5)
  figures.endWindow(0)
  expect(figures.lag()).toEqual({ p99Ms: 0, maxMs: 0, meanMs: 0, utilization: 0 })
  expect(figures.status()).toEqual({ commits: 1, entries: 1, commitMs: 3, slowestCommitMs: 0 })
})
