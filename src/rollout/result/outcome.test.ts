import { expect, test } from 'vitest'
import { outcomeNames, outcomes } from '../../schema/index.ts'
import { agentOutcomeBehind, agentOutcomeOf, endInReplay } from './outcome.ts'

const scored = outcomeNames.filter((outcome) => outcomes[outcome].scored)

test.each(scored)('a failed reward keeps the agent outcome %s', (outcome) => {
  expect(agentOutcomeOf({ outcome: 'reward_error', ...agentOutcomeBehind(outcome) })).toBe(outcome)
})

test.each(scored.filter((outcome) => outcome !== 'completed'))('a replay repeats the agent outcome %s', (outcome) => {
  expect(endInReplay[outcome]).not.toBe('own')
})

test('every other outcome is the outcome of the agent', () => {
  const others = outcomeNames.filter((outcome) => outcome !== 'reward_error')
  expect(others.map((outcome) => agentOutcomeOf({ outcome }))).toEqual(others)
})
