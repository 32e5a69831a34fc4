import { expect, test } from 'vitest'
import { outcomeNames } from '../../schema/index.ts'
import { agentOutcomeBehind, agentOutcomeOf } from './outcome.ts'

test.each([
  ['ended by itself', 'completed'],
  ['had used up its time', 'agent_timeout'],
] as const)('what a failed reward keeps says how an agent had ended that %s', (_, outcome) => {
  expect(agentOutcomeOf({ outcome: 'reward_error', ...agentOutcomeBehind(outcome) })).toBe(outcome)
})

test('every other outcome is that of the agent', () => {
  const others = outcomeNames.filter((outcome) => outcome !== 'reward_error')
  expect(others.map((outcome) => agentOutcomeOf({ outcome }))).toEqual(others)
})
