import { expect, test } from 'vitest'
import { serversTogether, withUnderWay } from './_under-way.ts'

test('what processes have under way is what they say, whatever is leased to them', () => {
  const model = { name: 'm', limit: 8, inFlight: 5, waiting: 1, parked: 0, calls: 9, tries: 9 }
  const reports = [
    { ...model, inFlight: 1, waiting: 0, parked: 2, probing: 1 },
    { ...model, inFlight: 2, waiting: 1, parked: 3, probing: 1 },
    { ...model, name: 'another', inFlight: 7 },
  ]
  expect(withUnderWay(model, reports)).toEqual({ ...model, inFlight: 3, waiting: 1, parked: 5, probing: 2 })
  expect(withUnderWay(model, [])).toEqual({ ...model, inFlight: 0, waiting: 0 })
})

test('a tool server is away if it is away for one worker, and the rollouts that wait are added up', () => {
  const away = { server: 'a', state: 'away', waiting: 2, awayMs: 50, awayBecause: 'refused' } as const
  const open = { server: 'a', state: 'open', waiting: 0, awayMs: 0 } as const
  const other = { server: 'b', state: 'unopened', waiting: 0, awayMs: 0 } as const
  const together = [{ ...away, waiting: 5, awayMs: 70 }, other]
  expect(serversTogether([open, away, other, { ...away, waiting: 3, awayMs: 70 }])).toEqual(together)
  expect(serversTogether([{ ...away, waiting: 3, awayMs: 70 }, other, away, open])).toEqual(together)
  expect(serversTogether([other, { ...open, server: 'b' }])).toEqual([{ ...open, server: 'b' }])
})
