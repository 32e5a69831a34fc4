import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { MillraceError } from '../../errors/index.ts'
import type { RewardContext } from '../define/context.ts'
import { defineEnvironment, type Environment } from '../define/define-environment.ts'
import { scoreRollout } from './score-rollout.ts'
import { rewardContext } from '../../../test/support/env/reward-context.ts'

function environmentWith(reward: Environment['reward']): Environment {
  return {
    ...defineEnvironment({ name: 'x', task: z.object({}), tasks: () => [], prompt: () => '', reward: () => 1 }),
    reward,
  }
}

function contextWith(signal = new AbortController().signal): RewardContext<unknown, unknown, unknown> {
  return rewardContext({}, { signal })
}

describe('scoreRollout', () => {
  test('a single function becomes the component `reward`', async () => {
    expect(
      await scoreRollout(
        environmentWith(({ answer }) => answer === '42'),
        contextWith(),
      ),
    ).toEqual({
      reward: 1,
      rewards: { reward: { score: 1, weight: 1 } },
      metrics: {},
    })
  })

  test('sums weighted components and keeps those of weight 0 as metrics', async () => {
    const environment = environmentWith({
      right: () => true,
      short: { weight: 0.5, score: () => 0.5 },
      rude: { weight: -1, score: () => 0.25 },
      words: { weight: 0, score: () => 7 },
      rank: { group: () => [1] },
    })
    expect(await scoreRollout(environment, contextWith())).toEqual({
      reward: 1,
      rewards: {
        right: { score: 1, weight: 1 },
        short: { score: 0.5, weight: 0.5 },
        rude: { score: 0.25, weight: -1 },
      },
      metrics: { words: 7 },
    })
  })

  test('runs asynchronous components in parallel', async () => {
    const first = Promise.withResolvers<number>()
    const second = Promise.withResolvers<boolean>()
    const environment = environmentWith({
      // Each waits for the other, so one after the other would never end.
      one: async () => {
        second.resolve(false)
        return await first.promise
      },
      two: async () => {
        first.resolve(3)
        return await second.promise
      },
      three: () => 1,
    })
    expect(await scoreRollout(environment, contextWith())).toMatchObject({
      reward: 4,
      rewards: { one: { score: 3 }, two: { score: 0 }, three: { score: 1 } },
    })
  })

  test('refuses an object as a score, and shows it', async () => {
    const scored = async () => scoreRollout(environmentWith({ odd: () => ({ score: 1 }) as never }), contextWith())
    await expect(scored).rejects.toThrow('reward "odd" gave { score: 1 }; a score is a finite number')
  })

  test.each([
    ['NaN', () => Number.NaN],
    ['Infinity', () => Infinity],
    ['undefined', () => undefined as never],
    ["'1'", () => '1' as never],
  ])('refuses %s', async (name, score) => {
    const message = `[reward_failed] reward "odd" gave ${name}; a score is a finite number or a boolean`
    await expect(scoreRollout(environmentWith({ odd: score }), contextWith())).rejects.toThrow(message)
    await expect(async () =>
      scoreRollout(environmentWith({ odd: async () => score() }), contextWith()),
    ).rejects.toThrow(message)
  })

  test('names the component that threw', async () => {
    const fail = () => {
      throw new Error('no key "x"')
    }
    const waiting = () => new Promise<number>(() => {})
    await expect(scoreRollout(environmentWith({ ok: waiting, bad: fail }), contextWith())).rejects.toThrow(
      '[reward_failed] reward "bad" threw Error: no key "x"',
    )
    const later = environmentWith({ ok: waiting, bad: async () => fail() })
    await expect(scoreRollout(later, contextWith())).rejects.toMatchObject({
      code: 'reward_failed',
      data: { component: 'bad' },
    })
  })

  test('two failing components leave no unhandled rejection', async () => {
    const bad = () => Promise.reject(new Error('bad'))
    const worse = () => {
      throw new Error('worse')
    }
    await expect(scoreRollout(environmentWith({ bad, also: bad }), contextWith())).rejects.toThrow(
      'reward "bad" threw Error: bad',
    )
    await expect(scoreRollout(environmentWith({ bad, worse }), contextWith())).rejects.toThrow(
      'reward "worse" threw Error: worse',
    )
  })

  test('an error that ends the attempt is not a failed reward', async () => {
    const error = new MillraceError('replay_diverged', 'a child went another way')
    const environment = environmentWith(() => Promise.reject(error))
    await expect(scoreRollout(environment, contextWith())).rejects.toBe(error)
  })

  test('stops at once when the rollout is stopped', async () => {
    const controller = new AbortController()
    const reason = new MillraceError('cancelled', 'enough')
    const scored = scoreRollout(
      environmentWith(() => new Promise<number>(() => {})),
      contextWith(controller.signal),
    )
    controller.abort(reason)
    await expect(scored).rejects.toBe(reason)
    const throwing = environmentWith(() => {
      throw new Error('because of the stop')
    })
    await expect(scoreRollout(throwing, contextWith(controller.signal))).rejects.toThrow(reason)
  })
})
