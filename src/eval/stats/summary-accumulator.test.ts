import { describe, expect, it } from 'vitest'
import { seededRandom } from '../../kit/index.ts'
import { emptyUsage } from '../../schema/index.ts'
import { passAtK } from './pass-at-k.ts'
import { RescoreAccumulator } from '../replay/rescore-summary.ts'
import { type EndedRollout, SummaryAccumulator } from './summary-accumulator.ts'

function ended(task: number, reward: number | null, more: Partial<EndedRollout> = {}): EndedRollout {
  return {
    task: { index: task, id: `task-${task}` },
    outcome: reward === null ? 'model_error' : 'completed',
    reward,
    rewards: reward === null ? {} : { correct: { score: reward, weight: 1 } },
    metrics: {},
    usage: { ...emptyUsage(), calls: 2, input: 100, output: 10 },
    judgeUsage: emptyUsage(),
    turns: 2,
    toolCalls: 1,
    toolErrors: 0,
    cost: 0.01,
    timing: { startedAt: 0, wallMs: 100, workingMs: 90, waitMs: 10, modelMs: 80, toolMs: 5, rewardMs: 1 },
    ...more,
  }
}

describe('SummaryAccumulator', () => {
  it('scores rollouts with a reward and only counts the others', () => {
    const accumulator = new SummaryAccumulator({ attemptsPerTask: 2, passThreshold: 1 })
    accumulator.add(ended(0, 1))
    accumulator.add(ended(0, 1))
    accumulator.add(ended(1, 0))
    accumulator.add(ended(1, null))
    accumulator.add(ended(2, null, { outcome: 'completed', voided: true }))
    accumulator.add(ended(2, null))
    const summary = accumulator.snapshot()
    expect(summary).toMatchObject({ tasks: 3, rollouts: 6, scored: 3, voided: 1, costUnknown: 0 })
    expect(summary.score).toMatchObject({ mean: expect.closeTo(2 / 3, 12), rollouts: 3, tasks: 2 })
    expect(summary.outcomes).toMatchObject({ completed: 4, model_error: 2, cancelled: 0 })
    // Only the first task had both attempts scored.
    expect(summary.pass).toEqual([
      { k: 1, atK: 1, hatK: 1, tasks: 1 },
      { k: 2, atK: 1, hatK: 1, tasks: 1 },
    ])
    expect(summary.usage).toMatchObject({ calls: 12, input: 600, output: 60 })
    expect(summary.cost).toBe(0.06)
  })

  it('has an interval within 0 and 1 if every reward is 0 or 1, also with open tasks', () => {
    const accumulator = new SummaryAccumulator({ attemptsPerTask: 2, passThreshold: 1 })
    for (const task of [0, 1, 2, 3, 4, 5]) accumulator.add(ended(task, 1))
    for (const task of [0, 1, 2, 3, 4]) accumulator.add(ended(task, 1))
    expect(accumulator.estimate()).toMatchObject({ mean: 1, high: 1, standardError: 0 })
    expect(accumulator.estimate()?.low).toBeLessThan(0.7)
    accumulator.add(ended(5, 0))
    expect(accumulator.estimate()?.high).toBeLessThan(1)
    accumulator.add(ended(6, 0.5))
    expect(accumulator.estimate()?.high).toBeGreaterThan(1)
  })

  it('with rescored 0/1 rewards, the change and its interval stay between -1 and 1', () => {
    const [binary, graded] = [1, 0.5].map((score) => {
      const rescored = new RescoreAccumulator({ attemptsPerTask: 1, passThreshold: 1 })
      for (const task of [0, 1, 2, 3, 4]) {
        const after = ended(task, task === 0 ? score : 0)
        rescored.addTask([{ before: ended(task, score), after }])
      }
      const usage = { judgeUsage: emptyUsage(), judgeCost: 0, wallMs: 1, notices: [] }
      return rescored.summary({ run: 'one', environment: 'two', ...usage }).change
    })
    expect(binary).toMatchObject({ mean: -0.8, low: -1 })
    expect(binary?.high).toBeLessThan(0)
    expect(graded).toMatchObject({ mean: -0.4, low: expect.closeTo(-0.678, 2) as number })
  })

  it('computes durations over the rollouts that ran', () => {
    const accumulator = new SummaryAccumulator({ attemptsPerTask: 1, passThreshold: 1 })
    const { timing } = ended(0, null)
    for (const task of [0, 1, 2]) {
      accumulator.add(ended(task, null, { outcome: 'env_error', turns: 0, timing: { ...timing, wallMs: 0 } }))
    }
    expect(accumulator.snapshot().durations.wall).toEqual({ p50Ms: Number.NaN, p95Ms: Number.NaN })
    accumulator.add(ended(3, 1))
    // Its teardown threw, after it had run.
    accumulator.add(ended(4, null, { outcome: 'env_error', timing: { ...timing, wallMs: 200 } }))
    expect(accumulator.snapshot().durations.wall).toEqual({
      p50Ms: expect.closeTo(100, -1),
      p95Ms: expect.closeTo(200, -1),
    })
  })

  it('groups the rollouts of a server by task, however many a request asked for', () => {
    const accumulator = new SummaryAccumulator({ attemptsPerTask: 1, passThreshold: 1, isServed: true })
    for (const [task, reward] of [
      [0, 1],
      [1, 1],
      [1, 0],
      [2, 0],
      [2, 0],
      [3, 1],
      [3, null],
    ] as const) {
      accumulator.add(ended(task, reward))
    }
    const summary = accumulator.snapshot()
    expect(summary).toMatchObject({ tasks: 4, rollouts: 7, scored: 6, score: { mean: 0.5, rollouts: 6, tasks: 4 } })
    // The last task had an attempt without a score.
    expect(summary.pass).toEqual([{ k: 1, atK: 0.5, hatK: 0.5, tasks: 3 }])
  })

  it('gives the same result for any order of rollouts', () => {
    const random = seededRandom(7)
    const attemptsPerTask = 4
    const records = Array.from({ length: 400 }, (_, index) => ended(Math.floor(index / 4), random() < 0.6 ? 1 : 0))
    const shuffled = records.map((record) => ({ record, at: random() })).sort((a, b) => a.at - b.at)
    const [inOrder, anyOrder] = [records, shuffled.map(({ record }) => record)].map((list) => {
      const accumulator = new SummaryAccumulator({ attemptsPerTask, passThreshold: 1 })
      for (const record of list) accumulator.add(record)
      return accumulator.snapshot()
    })
    expect(anyOrder?.score?.mean).toBeCloseTo(inOrder?.score?.mean ?? Number.NaN, 12)
    expect(anyOrder?.score?.low).toBeCloseTo(inOrder?.score?.low ?? Number.NaN, 9)
    for (const [index, { k, atK }] of (inOrder?.pass ?? []).entries()) {
      let sum = 0
      for (let task = 0; task < 100; task += 1) {
        const passed = records.filter((record) => record.task.index === task && record.reward === 1).length
        sum += passAtK(attemptsPerTask, passed, k)
      }
      expect(atK).toBeCloseTo(sum / 100, 10)
      expect(anyOrder?.pass[index]?.atK).toBeCloseTo(atK, 10)
    }
  })

  it('counts a cut-off task in the mean but not in pass@k', () => {
    const accumulator = new SummaryAccumulator({ attemptsPerTask: 2, passThreshold: 1 })
    accumulator.add(ended(0, 0))
    accumulator.add(ended(0, 0))
    accumulator.add(ended(1, 1))
    expect(accumulator.estimate()).toMatchObject({ mean: expect.closeTo(1 / 3, 12), rollouts: 3, tasks: 2 })
    expect(accumulator.snapshot()).toMatchObject({ tasks: 2, pass: [{ atK: 0, tasks: 1 }, { tasks: 1 }] })
    // A snapshot changes nothing: the task may still be completed.
    accumulator.add(ended(1, 1))
    expect(accumulator.snapshot()).toMatchObject({ tasks: 2, pass: [{ atK: 0.5, tasks: 2 }, { tasks: 2 }] })
  })

  it('keeps the sum of known costs and counts the unknown ones', () => {
    const accumulator = new SummaryAccumulator({ attemptsPerTask: 1, passThreshold: 1 })
    expect(accumulator.cost).toBe(0)
    accumulator.add(ended(0, 1, { cost: null }))
    expect(accumulator.snapshot()).toMatchObject({ cost: null, costUnknown: 1 })
    // A row that is no task has asked nobody: that is no price.
    accumulator.add(ended(1, null, { outcome: 'env_error', usage: emptyUsage(), cost: 0 }))
    expect(accumulator.snapshot()).toMatchObject({ cost: null, costUnknown: 1 })
    accumulator.add(ended(2, 1, { cost: 0.25 }))
    expect(accumulator.snapshot()).toMatchObject({ cost: 0.25, costUnknown: 1 })
  })

  it('averages components over scored rollouts, and metrics over all rollouts with a value', () => {
    const accumulator = new SummaryAccumulator({ attemptsPerTask: 1, passThreshold: 1 })
    accumulator.add(ended(0, 1, { rewards: { exact: { score: 1, weight: 0.5 } }, metrics: { retries: 2 } }))
    accumulator.add(ended(1, 0, { rewards: { exact: { score: 0, weight: 0.5 } } }))
    accumulator.add(ended(2, null, { rewards: { exact: { score: 1, weight: 0.5 } }, metrics: { retries: 4 } }))
    expect(accumulator.snapshot().components).toEqual({
      exact: { mean: 0.5, rollouts: 2, weight: 0.5 },
      retries: { mean: 3, rollouts: 2, weight: 0 },
    })
  })

  it('does not grow with invented metric names', () => {
    const accumulator = new SummaryAccumulator({ attemptsPerTask: 1, passThreshold: 1 })
    for (let task = 0; task < 1000; task += 1) accumulator.add(ended(task, 1, { metrics: { [`m${task}`]: 1 } }))
    expect(Object.keys(accumulator.snapshot().components).length).toBeLessThan(300)
  })

  it('is empty before the first rollout', () => {
    const summary = new SummaryAccumulator({ attemptsPerTask: 1, passThreshold: 1 }).snapshot()
    expect(summary).toMatchObject({ rollouts: 0, scored: 0, tasks: 0, score: undefined, pass: [{ tasks: 0 }] })
    expect(summary.durations.wall.p50Ms).toBeNaN()
  })
})
