import { describe, expect, test } from 'vitest'
import { emptyUsage, outcomes, type Outcome } from '../../schema/index.ts'
import { applyGroupScores, GroupCollector, type HeldMember, voidGroup } from './groups.ts'

function member(sample: number, outcome: Outcome = 'completed', attempt = 1): HeldMember {
  return {
    leaf: 0,
    terms: { task: { index: 3, id: '3', data: {} } },
    record: {
      id: `3-${sample}`,
      environment: 'test',
      model: 'test',
      task: { index: 3, id: '3' },
      sample,
      attempt,
      outcome,
      truncated: outcomes[outcome].truncated,
      reward: outcomes[outcome].scored ? 0.5 : null,
      rewards: outcomes[outcome].scored ? { own: { score: 0.5, weight: 1 } } : {},
      metrics: {},
      answer: null,
      messages: [],
      turns: 1,
      toolCalls: 0,
      toolErrors: 0,
      children: 0,
      usage: emptyUsage(),
      judgeUsage: emptyUsage(),
      cost: 0,
      timing: { startedAt: 0, wallMs: 0, workingMs: 0, waitMs: 0, modelMs: 0, toolMs: 0, rewardMs: 0 },
    },
  }
}

describe('GroupCollector', () => {
  test('waits for the last member, then returns all in the order of their samples', () => {
    const keeper = new GroupCollector({ size: 3, policy: 'keep', isScored: true }, 2)
    expect(keeper.add(member(2))).toBeUndefined()
    expect(keeper.add(member(0))).toBeUndefined()
    const verdict = keeper.add(member(1))
    expect(verdict?.kind).toBe('score')
    expect(verdict?.kind === 'score' && verdict.members.map(({ record }) => record.sample)).toEqual([0, 1, 2])
  })

  test('keep scores the other members', () => {
    const keeper = new GroupCollector({ size: 2, policy: 'keep', isScored: true }, 2)
    keeper.add(member(0, 'model_error'))
    expect(keeper.add(member(1))?.kind).toBe('score')
  })

  test('void removes every reward and keeps the components', () => {
    const keeper = new GroupCollector({ size: 2, policy: 'void', isScored: true }, 2)
    keeper.add(member(0, 'model_error'))
    const verdict = keeper.add(member(1))
    if (verdict?.kind !== 'void') throw new Error('expected the group to be void')
    voidGroup(verdict.members)
    expect(verdict.members[1]?.record).toMatchObject({ reward: null, voided: true, rewards: { own: { score: 0.5 } } })
    expect(verdict.members[0]?.record.voided).toBeUndefined()
  })

  test('replace repeats failed members, keeps the others, and voids after the last try', () => {
    const keeper = new GroupCollector({ size: 2, policy: 'replace', isScored: true }, 1)
    keeper.add(member(0))
    const first = keeper.add(member(1, 'agent_error', 1))
    expect(first?.kind === 'replace' && first.failed.map(({ record }) => record.id)).toEqual(['3-1'])
    expect(keeper.add(member(1, 'agent_error', 2))?.kind).toBe('void')
  })

  test('a replaced member that succeeds completes its group', () => {
    const keeper = new GroupCollector({ size: 2, policy: 'replace', isScored: true }, 2)
    keeper.add(member(0))
    keeper.add(member(1, 'agent_error', 1))
    expect(keeper.add(member(1, 'completed', 2))?.kind).toBe('score')
  })
})

test('group scores are added to the own score of a member', () => {
  const { record } = member(0)
  applyGroupScores([record], { '3-0': { rank: { score: 0.5, weight: 2 } } })
  expect(record.reward).toBe(1.5)
  expect(record.rewards['rank']).toEqual({ score: 0.5, weight: 2 })
})
