import { expect, it } from 'vitest'
import { RecentWaits } from './recent-waits.ts'

it('knows the worst of the last waits and forgets what is long ago', () => {
  const waits = new RecentWaits()
  expect({ p99: waits.p99Ms, max: waits.maxMs }).toEqual({ p99: 0, max: 0 })
  waits.add(5_000)
  for (let ms = 1; ms <= 200; ms += 1) waits.add(ms)
  expect({ p99: waits.p99Ms, max: waits.maxMs }).toEqual({ p99: 199, max: 5_000 })
  for (let round = 0; round < 512; round += 1) waits.add(3)
  expect({ p99: waits.p99Ms, max: waits.maxMs }).toEqual({ p99: 3, max: 3 })
})
