import { expect, test } from 'vitest'
import { withUnderWay } from './_under-way.ts'

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
