import { expect, test } from 'vitest'
import { WaitingLine, type InLine } from './_waiting-line.ts'

interface Named extends InLine<Named> {
  readonly name: string
}

const named = (name: string): Named => ({ name, ahead: undefined, behind: undefined })

function names(line: WaitingLine<Named>): string[] {
  const all: string[] = []
  for (let member = line.first; member; member = member.behind) all.push(member.name)
  return all
}

test('whoever leaves, from wherever, the others stay in their order', () => {
  const [a, b, c, d] = [named('a'), named('b'), named('c'), named('d')]
  const line = new WaitingLine<Named>()
  for (const member of [a, b, c, d]) line.join(member)
  line.leave(b)
  expect(names(line)).toEqual(['a', 'c', 'd'])
  line.leave(d)
  line.leave(a)
  line.join(b)
  expect(names(line)).toEqual(['c', 'b'])
  expect(line.size).toBe(2)
  line.leave(c)
  line.leave(b)
  expect(line.first).toBeUndefined()
  expect(line.size).toBe(0)
})

test('one that has left holds nobody', () => {
  const [first, second] = [named('first'), named('second')]
  const line = new WaitingLine<Named>()
  line.join(first)
  line.join(second)
  line.leave(first)
  expect(first).toEqual(named('first'))
})
