import { expect, expectTypeOf, test } from 'vitest'
import { z } from 'zod'
import type { RewardContext } from '../define/context.ts'
import { defineEnvironment } from '../define/define-environment.ts'
import { offload } from './reward.ts'
import { hasOffloadedReward, scoreOffloaded, scoreRollout } from './score-rollout.ts'

const context = { task: { n: 4 }, signal: new AbortController().signal } as RewardContext<unknown, unknown, unknown>

const environment = defineEnvironment({
  name: 'mixed',
  options: z.object({ factor: z.number() }),
  task: z.object({ n: z.number() }),
  tasks: () => [],
  setup: () => ({ open: true }),
  prompt: () => '',
  reward: {
    light: ({ state }) => state.open,
    double: {
      weight: 0.5,
      score: offload(
        (given) => {
          expectTypeOf(given.task).toEqualTypeOf<{ n: number }>()
          expectTypeOf(given.options).toEqualTypeOf<{ factor: number }>()
          expectTypeOf(given).not.toHaveProperty('state')
          expectTypeOf(given).not.toHaveProperty('judge')
          return given.task.n * given.options.factor
        },
        { timeoutMs: 5 },
      ),
    },
  },
})

test('an offloaded component is scored on a thread by name and time limit; others run here', async () => {
  expect(hasOffloadedReward(environment)).toBe(true)
  const asked: unknown[] = []
  const scored = await scoreRollout(
    environment,
    { ...context, state: { open: true } },
    {
      onBlocked: () => {},
      scoreOnThread: (component, timeoutMs) => {
        asked.push([component, timeoutMs])
        return Promise.resolve(8)
      },
    },
  )
  expect(asked).toEqual([['double', 5]])
  expect(scored).toMatchObject({ reward: 5, rewards: { light: { score: 1 }, double: { score: 8, weight: 0.5 } } })
})

test('scoreOffloaded() finds the component by name and passes the context', async () => {
  const rollout = { id: '0-0', attempt: 1, sample: 0, seed: 1 }
  const given = { task: { n: 4 }, options: { factor: 3 }, rollout, messages: [], answer: '', info: {} }
  const plain = { ...given, outcome: 'completed' as const, truncated: false }
  expect(await scoreOffloaded(environment, 'double', plain)).toBe(12)
  await expect(scoreOffloaded(environment, 'light', plain)).rejects.toThrow(/no offloaded reward "light"/)
})

test('an offloaded reward cannot be called directly, and an invalid time limit is refused', async () => {
  await expect(scoreRollout(environment, { ...context, state: { open: true } })).rejects.toThrow(
    /reward "double": an offloaded reward cannot be called/,
  )
  for (const timeoutMs of [0, -1, Number.NaN]) {
    expect(() => offload(() => 1, { timeoutMs })).toThrow(/must be a number above 0/)
  }
  expect(offload(() => 1, { timeoutMs: Infinity })).toBeTypeOf('function')
})

test('a reward that blocks the event loop is reported, also if it then fails', async () => {
  const slow = (score: () => number) => ({
    ...environment,
    reward: {
      slow: () => {
        const end = performance.now() + 250
        while (performance.now() < end);
        return score()
      },
    },
  })
  const blocked: [string, number][] = []
  const hooks = { onBlocked: (component: string, ms: number) => void blocked.push([component, ms]) }
  expect(
    await scoreRollout(
      slow(() => 1),
      context,
      hooks,
    ),
  ).toMatchObject({ reward: 1 })
  const failing = slow(() => {
    throw new Error('broken')
  })
  await expect(scoreRollout(failing, context, hooks)).rejects.toThrow('broken')
  expect(blocked.map(([component]) => component)).toEqual(['slow', 'slow'])
  for (const [, ms] of blocked) expect(ms).toBeGreaterThanOrEqual(250)
})
