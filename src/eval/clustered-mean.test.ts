import { describe, expect, it } from 'vitest'
import { seededRandom } from '../kit/index.ts'
import { ClusteredMean } from './clustered-mean.ts'
import { studentT95 } from './student-t.ts'

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
    mean.add(
      task.reduce((sum, value) => sum + value, 0),
      task.length,
    )
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
    const tasks = randomTasks(random, 2 + Math.floor(random() * 200))
    const estimate = accumulated(tasks).estimate()
    const expected = byDefinition(tasks)
    expect(estimate?.mean).toBeCloseTo(expected.mean, 12)
    expect(estimate?.low).toBeCloseTo(expected.low, 9)
    expect(estimate?.high).toBeCloseTo(expected.high, 9)
    expect(estimate?.rollouts).toBe(tasks.flat().length)
    expect(estimate?.tasks).toBe(tasks.length)
  })

  it('keeps its precision when rewards are far from zero', () => {
    const near = randomTasks(seededRandom(3), 100)
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

  it('covers the truth about as often as it says, where rollouts of a task go together', () => {
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

  it('knows no interval with one task, nothing at all with none, and leaves out tasks without a score', () => {
    const mean = new ClusteredMean()
    mean.add(0, 0)
    expect(mean.estimate()).toBeUndefined()
    mean.add(1, 2)
    expect(mean.estimate()).toEqual({ mean: 0.5, low: Number.NaN, high: Number.NaN, rollouts: 2, tasks: 1 })
  })

  it('has an interval of no width when all agree', () => {
    expect(accumulated([[0.3], [0.3, 0.3], [0.3]]).estimate()).toMatchObject({ low: 0.3, high: 0.3 })
  })

  it('copies without being touched by what happens to the copy', () => {
    const mean = accumulated([[1], [0]])
    const before = mean.estimate()
    mean.copy().add(5, 5)
    expect(mean.estimate()).toEqual(before)
  })
})
