import { expect, it } from 'vitest'
import type { KnownRequest } from './known-request.ts'
import { RequestIndex } from './known-requests.ts'

function request(firstTask: number): KnownRequest {
  return { id: `r${firstTask}`, digest: '', firstTask, tasks: 1, attempts: 1, isDetached: false, at: 0, outcomes: {} }
}

function ids(index: RequestIndex): string[] {
  return index.newest().map(({ id }) => id)
}

it('the index forgets the oldest ended request, and an active one after its end', () => {
  const active = new Set(['r0'])
  const index = new RequestIndex(2, (id) => active.has(id))
  for (let task = 0; task < 4; task += 1) index.add(request(task))
  expect(ids(index)).toEqual(['r3', 'r0'])
  active.delete('r0')
  index.add(request(4))
  index.add(request(5))
  expect(ids(index)).toEqual(['r5', 'r4'])
})

it('a request that was kept while active is next after those added meanwhile', () => {
  const active = new Set(['r0'])
  const index = new RequestIndex(3, (id) => active.has(id))
  for (let task = 0; task < 4; task += 1) index.add(request(task))
  active.delete('r0')
  for (let task = 4; task < 6; task += 1) index.add(request(task))
  expect(ids(index)).toEqual(['r5', 'r4', 'r0'])
  index.add(request(6))
  expect(ids(index)).toEqual(['r6', 'r5', 'r4'])
})

it('the index exceeds its limit while all requests are active', () => {
  const index = new RequestIndex(1, () => true)
  for (let task = 0; task < 3; task += 1) index.add(request(task))
  expect(ids(index)).toEqual(['r2', 'r1', 'r0'])
})

it('the index keeps a request that was removed and added again', () => {
  const index = new RequestIndex(2, () => false)
  index.add(request(0))
  index.remove('r0')
  index.add(request(1))
  index.add(request(0))
  index.add(request(2))
  expect(ids(index)).toEqual(['r2', 'r0'])
})
