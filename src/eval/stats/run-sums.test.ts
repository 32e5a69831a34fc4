import { expect, test } from 'vitest'
import { ActiveTime } from './run-sums.ts'

const at = (second: number): string => new Date(second * 1000).toISOString()

test('the active time adds up the launches, a cut-off launch up to its last ended rollout', () => {
  const launches = [
    { startedAt: at(0), endedAt: at(10), workedMs: 7000 },
    // Of a version that did not say how long it worked.
    { startedAt: at(20), endedAt: at(25) },
    { startedAt: at(30) },
    { startedAt: at(50) },
  ]
  const worked = new ActiveTime(launches)
  for (const second of [5, 36, 33]) worked.noteEnd(second * 1000)
  expect(worked.sumMs()).toBe(7000 + 5000 + 6000)
  expect(worked.sumMs(52_000)).toBe(7000 + 5000 + 6000 + 2000)
})
