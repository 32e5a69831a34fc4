import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { MillraceError } from '../../errors/index.ts'
import { emptyUsage, type RolloutRecord } from '../../schema/index.ts'
import { defineEnvironment, type Environment } from '../define/define-environment.ts'
import { hasGroupReward, scoreGroup } from './score-group.ts'

function environmentWith(reward: Environment['reward']): Environment {
  return {
    ...defineEnvironment({ name: 'x', task: z.object({}), tasks: () => [], prompt: () => '', reward: () => 1 }),
    reward,
  }
}

function record(sample: number, more: Partial<RolloutRecord> = {}): RolloutRecord {
  return {
    id: `0-${sample}`,
    environment: 'x',
    model: 'm',
    task: { index: 0, id: '0' },
    sample,
    attempt: 1,
    outcome: 'completed',
    truncated: false,
    reward: 1,
    rewards: { right: { score: 0.5, weight: 1 } },
    metrics: { words: 3 },
    answer: `answer ${sample}`,
    messages: [],
    turns: 1,
    toolCalls: 0,
    toolErrors: 0,
    children: 0,
    usage: emptyUsage(),
    judgeUsage: emptyUsage(),
    cost: 0,
    timing: { startedAt: 0, wallMs: 0, workingMs: 0, waitMs: 0, modelMs: 0, toolMs: 0, rewardMs: 0 },
    ...more,
  }
}

const { signal } = new AbortController()

describe('scoreGroup', () => {
  test('a component cannot change the order of the members', async () => {
    const reward = {
      best: {
        group: ({ members }: { members: readonly unknown[] }) => (members as unknown[]).fill(members[1]).map(() => 1),
      },
    }
    const scored = scoreGroup(environmentWith(reward), {
      task: {},
      options: {},
      members: [record(0), record(1)],
      signal,
    })
    await expect(scored).rejects.toMatchObject({ code: 'reward_failed' })
  })

  test('a component is aborted when another one fails', async () => {
    const { promise: received, resolve } = Promise.withResolvers<unknown>()
    const reward = {
      working: {
        group: (group: { readonly signal: AbortSignal }) =>
          new Promise<never>(() => {
            group.signal.addEventListener('abort', () => resolve(group.signal.reason))
          }),
      },
      failing: { group: () => Promise.reject(new Error('wrong')) },
    }
    const scored = scoreGroup(environmentWith(reward), { task: {}, options: {}, members: [record(0)], signal })
    await expect(scored).rejects.toMatchObject({ code: 'reward_failed' })
    expect(await received).toMatchObject({ data: { component: 'failing' } })
  })

  test('gives each member its scores', async () => {
    const environment = environmentWith({
      right: () => 1,
      rank: { weight: 0.5, group: ({ members }) => members.map((_, index) => index) },
      spread: { group: async ({ members }) => members.map(() => 0) },
    })
    expect(hasGroupReward(environment)).toBe(true)
    expect(hasGroupReward(environmentWith({ right: () => 1 }))).toBe(false)
    const scores = await scoreGroup(environment, { task: {}, options: {}, members: [record(0), record(3)], signal })
    expect(scores).toEqual({
      '0-0': { rank: { score: 0, weight: 0.5 }, spread: { score: 0, weight: 1 } },
      '0-3': { rank: { score: 1, weight: 0.5 }, spread: { score: 0, weight: 1 } },
    })
  })

  test('shows members as plain values', async () => {
    let seen: unknown
    const environment = environmentWith({
      look: {
        group: (group) => {
          seen = { task: group.task, options: group.options, members: group.members }
          return [0, 0]
        },
      },
    })
    const members = [
      record(0, { info: { path: [1, 2] } }),
      record(1, { answer: null, outcome: 'max_turns', truncated: true }),
    ]
    await scoreGroup(environment, { task: { a: 1 }, options: { b: 2 }, members, signal })
    const scores = { words: 3, right: 0.5 }
    expect(seen).toEqual({
      task: { a: 1 },
      options: { b: 2 },
      members: [
        {
          id: '0-0',
          sample: 0,
          outcome: 'completed',
          truncated: false,
          messages: [],
          answer: 'answer 0',
          scores,
          info: { path: [1, 2] },
        },
        { id: '0-1', sample: 1, outcome: 'max_turns', truncated: true, messages: [], answer: '', scores, info: {} },
      ],
    })
  })

  test.each([
    ['too few', () => [1], 'gave [1] for 2 members'],
    ['no numbers', () => [1, Number.NaN], 'gave [1, NaN] for 2 members'],
    ['no list', () => 3 as never, 'gave 3 for 2 members'],
    [
      'an error',
      () => {
        throw new Error('boom')
      },
      'reward "odd" threw Error: boom',
    ],
  ])('refuses %s', async (_what, group, message) => {
    const scoring = scoreGroup(environmentWith({ odd: { group } }), {
      task: {},
      options: {},
      members: [record(0), record(1)],
      signal,
    })
    await expect(scoring).rejects.toMatchObject({ code: 'reward_failed', rawMessage: expect.stringContaining(message) })
  })

  test('stops at once when the run is stopped', async () => {
    const controller = new AbortController()
    const reason = new MillraceError('cancelled', 'enough')
    const environment = environmentWith({ slow: { group: () => new Promise<number[]>(() => {}) } })
    const scoring = scoreGroup(environment, { task: {}, options: {}, members: [record(0)], signal: controller.signal })
    controller.abort(reason)
    await expect(scoring).rejects.toBe(reason)
  })
})
