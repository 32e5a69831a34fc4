import { describe, expect, it } from 'vitest'
import { seededRandom } from '../../kit/index.ts'
import { ClusteredMean, isBinaryReward, studentT95 } from './clustered-mean.ts'

/** The textbook form, over all values at once. */
function byDefinition(tasks: readonly (readonly number[])[]): { mean: number; low: number; high: number } {
  const values = tasks.flat()
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length
  const residuals = tasks.map((task) => task.reduce((sum, value) => sum + (value - mean), 0))
  const squares = residuals.reduce((sum, residual) => sum + residual * residual, 0)
  const error = Math.sqrt(((tasks.length / (tasks.length - 1)) * squares) / values.length ** 2)
  const half = studentT95(tasks.length - 1) * error
  return { mean, low: mean - half, high: mean + half }
}

function accumulated(tasks: readonly (readonly number[])[]): ClusteredMean {
  const mean = new ClusteredMean()
  for (const task of tasks) {
    mean.add({
      sum: task.reduce((sum, value) => sum + value, 0),
      count: task.length,
      isBinary: task.every(isBinaryReward),
    })
  }
  return mean
}

function randomTasks(random: () => number, count: number, offset = 0): number[][] {
  return Array.from({ length: count }, () => {
    const difficulty = random()
    return Array.from({ length: 1 + Math.floor(random() * 8) }, () => offset + (random() < difficulty ? 1 : 0))
  })
}

describe('ClusteredMean', () => {
  it.each([1, 2, 3, 4, 5, 6, 7, 8])('agrees with the textbook form on random tasks (seed %i)', (seed) => {
    const random = seededRandom(seed)
    const tasks = randomTasks(random, 2 + Math.floor(random() * 200), 0.5)
    const estimate = accumulated(tasks).estimate()
    const expected = byDefinition(tasks)
    expect(estimate?.mean).toBeCloseTo(expected.mean, 12)
    expect(estimate?.low).toBeCloseTo(expected.low, 9)
    expect(estimate?.high).toBeCloseTo(expected.high, 9)
    expect(estimate?.rollouts).toBe(tasks.flat().length)
    expect(estimate?.tasks).toBe(tasks.length)
  })

  it('keeps its precision when rewards are far from zero', () => {
    const near = randomTasks(seededRandom(3), 100, 0.5)
    const far = near.map((task) => task.map((value) => value + 1e9))
    const [small, large] = [accumulated(near).estimate(), accumulated(far).estimate()]
    expect((large?.high ?? 0) - (large?.low ?? 0)).toBeCloseTo((small?.high ?? 0) - (small?.low ?? 0), 5)
  })

  it('with one rollout per task is the ordinary interval of a mean', () => {
    const values = [0, 1, 1, 0, 1, 1, 1, 0.5, 0.25, 1]
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length
    const deviation = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1))
    const estimate = accumulated(values.map((value) => [value])).estimate()
    expect(estimate?.high).toBeCloseTo(mean + (studentT95(9) * deviation) / Math.sqrt(10), 10)
  })

  it.each([0, 1])('stays within 0 and 1 if every reward is %i, and is narrower with more tasks', (reward) => {
    const widths = [5, 20, 300].map((count) => {
      const estimate = accumulated(Array.from({ length: count }, () => [reward, reward])).estimate()
      const { low = Number.NaN, high = Number.NaN } = estimate ?? {}
      expect(reward === 0 ? low : high).toBe(reward)
      return high - low
    })
    const [few = 0, some = 0, many = 0] = widths
    expect(few).toBeLessThan(1)
    expect(some).toBeLessThan(few)
    expect(many).toBeGreaterThan(0.005)
    expect(many).toBeLessThan(0.02)
  })

  it.each([1, 2, 3, 4])('of 0/1 rewards never leaves 0 to 1, and neither does the mean (seed %i)', (seed) => {
    const random = seededRandom(seed)
    for (let repetition = 0; repetition < 300; repetition += 1) {
      const rate = random() ** 4
      const tasks = Array.from({ length: 2 + Math.floor(random() * 30) }, () =>
        Array.from({ length: 1 + Math.floor(random() * 4) }, () => (random() < rate ? 1 : 0)),
      )
      const { mean, low, high } = accumulated(tasks).estimate() ?? { mean: 0, low: -1, high: 2 }
      expect(low).toBeGreaterThanOrEqual(0)
      expect(high).toBeLessThanOrEqual(1)
      expect(low).toBeLessThanOrEqual(mean)
      expect(high).toBeGreaterThanOrEqual(mean)
      expect(high - low).toBeGreaterThan(0)
    }
  })

  it('with one rollout per task is the Wilson interval with t quantiles and n - 1 tasks', () => {
    const values = Array.from({ length: 30 }, (_, index) => (index < 27 ? 1 : 0))
    const [share, count, t] = [0.9, 29, studentT95(29)]
    const centre = (share + t ** 2 / (2 * count)) / (1 + t ** 2 / count)
    const half = (t / (1 + t ** 2 / count)) * Math.sqrt((share * (1 - share)) / count + t ** 2 / (4 * count ** 2))
    const estimate = accumulated(values.map((value) => [value])).estimate()
    expect(estimate?.low).toBeCloseTo(centre - half, 10)
    expect(estimate?.high).toBeCloseTo(centre + half, 10)
  })

  it.each([0.02, 0.1, 0.9, 0.98])('covers a share of %d at the stated rate for correlated rollouts', (share) => {
    const random = seededRandom(17)
    const repetitions = 1000
    let covered = 0
    for (let repetition = 0; repetition < repetitions; repetition += 1) {
      const tasks = Array.from({ length: 60 }, () => {
        // Half of the rollouts of a task do what the first one does.
        const first = random() < share ? 1 : 0
        return Array.from({ length: 4 }, () => (random() < 0.5 ? first : random() < share ? 1 : 0))
      })
      const { low, high } = accumulated(tasks).estimate() ?? { low: 1, high: 0 }
      if (low <= share && share <= high) covered += 1
    }
    expect(covered / repetitions).toBeGreaterThan(0.92)
  })

  it('covers the true mean at the stated rate if rollouts of a task are equal', () => {
    const random = seededRandom(11)
    let covered = 0
    const repetitions = 600
    for (let repetition = 0; repetition < repetitions; repetition += 1) {
      // Half of the tasks always pass and half never do: eight rollouts of one say no more than a single one.
      const tasks = Array.from({ length: 40 }, () => Array<number>(8).fill(random() < 0.5 ? 1 : 0))
      const estimate = accumulated(tasks).estimate()
      if (estimate && estimate.low <= 0.5 && estimate.high >= 0.5) covered += 1
    }
    expect(covered / repetitions).toBeGreaterThan(0.92)
    expect(covered / repetitions).toBeLessThan(0.98)
  })

  it('agrees with a bootstrap over tasks', () => {
    const random = seededRandom(5)
    const tasks = randomTasks(random, 120)
    const means: number[] = []
    for (let draw = 0; draw < 2000; draw += 1) {
      let sum = 0
      let count = 0
      for (let index = 0; index < tasks.length; index += 1) {
        const task = tasks[Math.floor(random() * tasks.length)] ?? []
        count += task.length
        for (const value of task) sum += value
      }
      means.push(sum / count)
    }
    means.sort((a, b) => a - b)
    const width = (means[1949] ?? 0) - (means[49] ?? 0)
    const estimate = accumulated(tasks).estimate()
    expect(((estimate?.high ?? 0) - (estimate?.low ?? 0)) / width).toBeGreaterThan(0.9)
    expect(((estimate?.high ?? 0) - (estimate?.low ?? 0)) / width).toBeLessThan(1.1)
  })

  it('has no interval for one task, no mean without scores, and ignores tasks without a score', () => {
    const mean = new ClusteredMean()
    mean.add({ sum: 0, count: 0, isBinary: true })
    expect(mean.estimate()).toBeUndefined()
    mean.add({ sum: 1, count: 2, isBinary: true })
    const unknown = { low: Number.NaN, high: Number.NaN, standardError: Number.NaN }
    expect(mean.estimate()).toEqual({ mean: 0.5, ...unknown, rollouts: 2, tasks: 1 })
  })

  it('has an interval of zero width if all rewards are equal', () => {
    expect(accumulated([[0.3], [0.3, 0.3], [0.3]]).estimate()).toMatchObject({ low: 0.3, high: 0.3 })
  })

  it('a copy is not changed with its original', () => {
    const mean = accumulated([[1], [0]])
    const before = mean.estimate()
    mean.copy().add({ sum: 2.5, count: 5, isBinary: false })
    expect(mean.estimate()).toEqual(before)
  })
})

// From printed tables of Student's t, two-sided 95%.
const known: readonly (readonly [number, number])[] = [
  [1, 12.7062],
  [2, 4.30265],
  [3, 3.18245],
  [4, 2.77645],
  [5, 2.57058],
  [9, 2.26216],
  [29, 2.04523],
  [99, 1.98422],
  [999, 1.96234],
]

describe('studentT95', () => {
  it.each(known)('with %i degrees of freedom is %f', (degrees, expected) => {
    expect(Math.abs(studentT95(degrees) / expected - 1)).toBeLessThan(0.0015)
    if (degrees >= 6 || degrees <= 2) expect(Math.abs(studentT95(degrees) / expected - 1)).toBeLessThan(1e-4)
  })

  it('falls towards the normal quantile and is undefined below one degree of freedom', () => {
    for (let degrees = 1; degrees < 300; degrees += 1) {
      expect(studentT95(degrees + 1)).toBeLessThan(studentT95(degrees))
    }
    expect(studentT95(1e9)).toBeCloseTo(1.95996, 5)
    expect(studentT95(0)).toBeNaN()
  })
})
