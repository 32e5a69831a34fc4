import { expect, test } from 'vitest'
import { SemaphoreLedger } from './semaphore-ledger.ts'

const heldCell = 1
const waitingCell = 2
const firstPlace = { held: 3, waiting: 4, counts: 6 }

function start() {
  const cells = new Int32Array(new SharedArrayBuffer(SemaphoreLedger.cellsFor(3) * Int32Array.BYTES_PER_ELEMENT))
  const ledgers = [0, 1, 2].map((place) => new SemaphoreLedger(cells, place))
  const [first, second, owner] = ledgers as [SemaphoreLedger, SemaphoreLedger, SemaphoreLedger]
  owner.setLimit(10)
  first.claim()
  second.claim()
  second.claim()
  return { cells, first, second, owner }
}

test('a thread that ended between two counts loses what it held, and nothing is left of it', () => {
  const { owner } = start()
  expect(owner.reclaim(0)).toBe(true)
  expect(owner.held).toBe(2)
})

test('one that was ended after it counted for all and before it counted for itself is found out', () => {
  const { cells, owner } = start()
  Atomics.add(cells, firstPlace.counts, 1)
  Atomics.add(cells, heldCell, 1)
  expect(owner.reclaim(0)).toBe(false)
  expect(owner.held).toBe(3)
  expect(owner.audit()).toBe(true)
  expect(owner.held).toBe(2)
})

test('one that was ended after it counted for itself and before it counted for all, as well', () => {
  const { cells, owner } = start()
  Atomics.add(cells, firstPlace.counts, 1)
  Atomics.sub(cells, firstPlace.held, 1)
  Atomics.add(cells, firstPlace.waiting, 1)
  expect(owner.reclaim(0)).toBe(false)
  expect(owner.audit()).toBe(true)
  expect([owner.held, cells[waitingCell]]).toEqual([2, 0])
})

test('nothing is put right while somebody counts', () => {
  const { cells, owner } = start()
  Atomics.add(cells, firstPlace.counts, 1)
  Atomics.add(cells, heldCell, 1)
  expect(owner.audit()).toBe(false)
  expect(owner.held).toBe(4)
  Atomics.add(cells, firstPlace.held, 1)
  Atomics.add(cells, firstPlace.counts, 1)
  expect(owner.audit()).toBe(true)
  expect(owner.held).toBe(4)
})
