import { expect, test } from 'vitest'
import { seededRandom } from './random.ts'
import { Roster } from './roster.ts'

test('is a set without an order', () => {
  const roster = new Roster<number>()
  const set = new Set<number>()
  const random = seededRandom(7)
  for (let step = 0; step < 5_000; step += 1) {
    const member = Math.floor(random() * 200)
    if (set.has(member)) {
      roster.delete(member)
      set.delete(member)
    } else {
      roster.add(member)
      set.add(member)
    }
    expect(roster.size).toBe(set.size)
  }
  expect(new Set(roster)).toEqual(set)
})

test('whoever is not there stays away', () => {
  const roster = new Roster<string>()
  roster.add('a')
  roster.delete('b')
  expect([...roster]).toEqual(['a'])
})

test('members may leave while they are gone through', () => {
  const roster = new Roster<number>()
  for (let member = 0; member < 10; member += 1) roster.add(member)
  const seen: number[] = []
  for (const member of roster) {
    seen.push(member)
    roster.delete(member)
  }
  expect(seen).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
  expect(roster.size).toBe(0)
})
