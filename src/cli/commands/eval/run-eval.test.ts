import { expect, test } from 'vitest'
import { loopLag } from '../../../rollout/index.ts'
import { reportBlockedLoops } from './run-eval.ts'

test('each blocking function is reported once, with its place and duration, up to a limit', () => {
  const reported: string[] = []
  {
    using _reporting = reportBlockedLoops((text) => reported.push(text))
    loopLag.publish({ worker: 1, lagMs: 2_100, blockedBy: 'parse (/home/me/env.ts:12)' })
    loopLag.publish({ worker: 3, lagMs: 4_200, blockedBy: 'parse (/home/me/env.ts:15)' })
    loopLag.publish({ worker: null, lagMs: 300, blockedBy: 'reward "tidy" of shop', component: 'tidy' })
    loopLag.publish({ worker: -2, lagMs: 2_000 })
    for (let count = 0; count < 10; count += 1) {
      loopLag.publish({ worker: 1, lagMs: 2_000, blockedBy: `step${count} (/home/me/env.ts:1)` })
    }
  }
  loopLag.publish({ worker: 1, lagMs: 2_000, blockedBy: 'late (/home/me/env.ts:1)' })
  expect(reported.slice(0, 3)).toEqual([
    'parse (/home/me/env.ts:12) blocked the loop of worker 1, and every rollout on it, for 2.1s or more. Make it asynchronous, or an offload(…) reward.',
    'reward "tidy" of shop blocked the loop, and every rollout on it, for 300ms or more. Make it offload(…).',
    expect.stringMatching(/^an unknown function blocked the loop of quarantine worker 2/),
  ])
  expect(reported).toHaveLength(5)
  expect(reported[4]).toMatch(/^step1 .* Further functions are not reported here: see millrace doctor\.$/)
})
