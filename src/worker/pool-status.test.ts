import { expect, test } from 'vitest'
import { reportedModel, serversTogether } from './pool-status.ts'

test('the requests in flight are those reported by the workers, not the leased ones', () => {
  const limit = { name: 'm', limit: 8, leased: 5, wanted: 1 }
  const model = { name: 'm', limit: 8, inFlight: 0, waiting: 0, parked: 0, calls: 0, tries: 0 }
  const reports = [
    { ...model, inFlight: 1, waiting: 0, parked: 2, probing: 1, calls: 4, tries: 5 },
    { ...model, inFlight: 2, waiting: 1, parked: 3, probing: 1, calls: 1, tries: 1 },
    { ...model, name: 'another', inFlight: 7 },
  ]
  const sums = { inFlight: 3, waiting: 1, parked: 5, probing: 2, calls: 5, tries: 6 }
  expect(reportedModel(limit, reports)).toEqual({ ...model, ...sums })
  expect(reportedModel(limit, [])).toEqual(model)
})

test('a tool server is away if it is away for one worker, and waiting rollouts are added up', () => {
  const away = { server: 'a', state: 'away', waiting: 2, awayMs: 50, awayBecause: 'refused' } as const
  const open = { server: 'a', state: 'open', waiting: 0, awayMs: 0 } as const
  const other = { server: 'b', state: 'unopened', waiting: 0, awayMs: 0 } as const
  const together = [{ ...away, waiting: 5, awayMs: 70 }, other]
  expect(serversTogether([open, away, other, { ...away, waiting: 3, awayMs: 70 }])).toEqual(together)
  expect(serversTogether([{ ...away, waiting: 3, awayMs: 70 }, other, away, open])).toEqual(together)
  expect(serversTogether([other, { ...open, server: 'b' }])).toEqual([{ ...open, server: 'b' }])
})
