import { expect, test } from 'vitest'
import { GroupScores } from './advantage.ts'

const scores = [1, 0, 0.5, null, 1]

test.each([
  ['mean', [0.375, -0.625, -0.125, null, 0.375]],
  // The deviation of 1, 0, 0.5, 1 with n - 1 is 0.478714.
  ['grpo', [0.783186, -1.30531, -0.261062, null, 0.783186]],
  // The mean of the others: 0.5, 0.8333, 0.6667, 0.5.
  ['rloo', [0.5, -0.833333, -0.166667, null, 0.5]],
] as const)('%s compares a member with its group, and leaves out failed members', (rule, expected) => {
  const group = new GroupScores(rule, scores)
  for (const [index, score] of scores.entries()) {
    const advantage = group.advantage(score)
    if (advantage === null) expect(expected[index]).toBeNull()
    else expect(advantage).toBeCloseTo(expected[index] ?? Number.NaN, 5)
  }
})

test('a group with one member that counts has an advantage of 0', () => {
  for (const rule of ['mean', 'grpo', 'rloo'] as const) {
    const group = new GroupScores(rule, [null, 0.7, null])
    expect([group.advantage(0.7), group.advantage(null)]).toEqual([0, null])
  }
})

test('equal rewards have an advantage of 0', () => {
  for (const rule of ['mean', 'grpo', 'rloo'] as const) expect(new GroupScores(rule, [1, 1, 1]).advantage(1)).toBe(0)
})

test('without a rule there is no advantage', () => {
  expect(new GroupScores('none', [1, 0]).advantage(1)).toBeNull()
})
