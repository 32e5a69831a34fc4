import { expect, test } from 'vitest'
import { LinkedQueue, type Linked } from './_linked-queue.ts'

interface Named extends Linked<Named> {
  readonly name: string
}

const named = (name: string): Named => ({ name, ahead: undefined, behind: undefined })

function names(queue: LinkedQueue<Named>): string[] {
  const all: string[] = []
  for (let member = queue.first; member; member = member.behind) all.push(member.name)
  return all
}

test('whoever leaves, from wherever, the others stay in their order', () => {
  const [a, b, c, d] = [named('a'), named('b'), named('c'), named('d')]
  const queue = new LinkedQueue<Named>()
  for (const member of [a, b, c, d]) queue.join(member)
  queue.leave(b)
  expect(names(queue)).toEqual(['a', 'c', 'd'])
  queue.leave(d)
  queue.leave(a)
  queue.join(b)
  expect(names(queue)).toEqual(['c', 'b'])
  expect(queue.size).toBe(2)
  queue.leave(c)
  queue.leave(b)
  expect(queue.first).toBeUndefined()
  expect(queue.size).toBe(0)
})

test('one that has left holds nobody', () => {
  const [first, second] = [named('first'), named('second')]
  const queue = new LinkedQueue<Named>()
  queue.join(first)
  queue.join(second)
  queue.leave(first)
  expect(first).toEqual(named('first'))
})
