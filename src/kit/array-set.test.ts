import { expect, test } from 'vitest'
import { seededRandom } from './random.ts'
import { ArraySet } from './array-set.ts'

test('is a set without an order', () => {
  const arraySet = new ArraySet<number>()
  const set = new Set<number>()
  const random = seededRandom(7)
  for (let step = 0; step < 5_000; step += 1) {
    const member = Math.floor(random() * 200)
    if (set.has(member)) {
      arraySet.delete(member)
      set.delete(member)
    } else {
      arraySet.add(member)
      set.add(member)
    }
    expect(arraySet.size).toBe(set.size)
  }
  expect(new Set(arraySet)).toEqual(set)
})

test('whoever is not there stays away', () => {
  const arraySet = new ArraySet<string>()
  arraySet.add('a')
  arraySet.delete('b')
  expect([...arraySet]).toEqual(['a'])
})

test('members may leave while they are gone through', () => {
  const arraySet = new ArraySet<number>()
  for (let member = 0; member < 10; member += 1) arraySet.add(member)
  const seen: number[] = []
  for (const member of arraySet) {
    seen.push(member)
    arraySet.delete(member)
  }
  expect(seen).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
  expect(arraySet.size).toBe(0)
})
