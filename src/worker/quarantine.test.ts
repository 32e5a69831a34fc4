import { describe, expect, test } from 'vitest'
import { Quarantine } from './quarantine.ts'

const keys = (count: number): string[] => Array.from({ length: count }, (_, index) => `${index}-0`)

/**
 * Runs calls as a pool does: those that are free all together on one worker, each cohort on another. A worker with a
 * poison call on it dies. Returns how often each call ran in vain.
 */
function play(
  calls: readonly string[],
  isPoison: (key: string) => boolean,
  knowsCulprit = false,
): { dispositions: Record<string, string>; losses: Map<string, number>; deaths: number } {
  const quarantine = new Quarantine()
  const dispositions: Record<string, string> = {}
  const losses = new Map<string, number>()
  let waiting = [...calls]
  let deaths = 0
  while (waiting.length > 0 && deaths < 1_000) {
    const cohort = quarantine.cohortOf(waiting[0] ?? '')
    const together = waiting.filter((key) => quarantine.cohortOf(key) === cohort)
    const culprit = together.find(isPoison)
    if (culprit === undefined) {
      for (const key of together) quarantine.forget(key)
    } else {
      deaths += 1
      quarantine.noteDeath({ calls: together, abandoned: [], isBlameless: false, ...(knowsCulprit && { culprit }) })
      for (const key of together) losses.set(key, (losses.get(key) ?? 0) + 1)
    }
    waiting = waiting.filter((key) => {
      if (!together.includes(key)) return true
      const { disposition } = quarantine.lossOf(key)
      if (culprit !== undefined && disposition === 'again') return true
      dispositions[key] = culprit === undefined ? 'ended' : disposition
      quarantine.forget(key)
      return false
    })
  }
  return { dispositions, losses, deaths }
}

const found = (dispositions: Record<string, string>, disposition: string): string[] =>
  Object.keys(dispositions).filter((key) => dispositions[key] === disposition)

describe('a call that kills its worker', () => {
  test.each([1, 2, 5, 17, 100, 1_000])('among %i is identified after three deaths, without blaming others', (count) => {
    const poison = `${Math.floor(count / 2)}-0`
    const { dispositions, losses, deaths } = play(keys(count), (key) => key === poison)
    expect(found(dispositions, 'poisoned')).toEqual([poison])
    expect(found(dispositions, 'ended')).toHaveLength(count - 1)
    expect(deaths).toBe(losses.get(poison))
    expect(deaths).toBe(3)
  })

  test('runs alone once its worker names it, and the other calls do not', () => {
    const { dispositions, losses, deaths } = play(keys(100), (key) => key === '7-0', true)
    expect(found(dispositions, 'poisoned')).toEqual(['7-0'])
    expect(deaths).toBe(3)
    expect(losses.get('8-0')).toBe(1)
  })

  test.each([false, true])('is identified among many others of its kind (named: %s)', (knowsCulprit) => {
    const { dispositions, losses } = play(keys(200), (key) => Number.parseInt(key) % 9 === 4, knowsCulprit)
    expect(found(dispositions, 'poisoned')).toHaveLength(22)
    expect(found(dispositions, 'ended')).toHaveLength(178)
    expect(Math.max(...losses.values())).toBeLessThanOrEqual(6)
  })
})

describe('a worker death', () => {
  test('without a culprit repeats its calls together once', () => {
    const quarantine = new Quarantine()
    quarantine.noteDeath({ calls: keys(10), abandoned: [], isBlameless: false })
    const cohorts = new Set(keys(10).map((key) => quarantine.cohortOf(key)))
    expect(cohorts.size).toBe(1)
    expect(cohorts.has(undefined)).toBe(false)
    quarantine.forget('3-0')
    expect(quarantine.cohortOf('3-0')).toBeUndefined()
  })

  test('caused by Millrace itself makes no call a suspect, but retries are limited', () => {
    const quarantine = new Quarantine()
    for (let loss = 1; loss < 6; loss += 1) {
      quarantine.noteDeath({ calls: ['1-0'], abandoned: [], isBlameless: true })
      expect(quarantine.cohortOf('1-0')).toBeUndefined()
      expect(quarantine.lossOf('1-0')).toMatchObject({ losses: loss, disposition: 'again' })
    }
    quarantine.noteDeath({ calls: ['1-0'], abandoned: [], isBlameless: true })
    expect(quarantine.lossOf('1-0').disposition).toBe('worker_lost')
  })

  test('with an abandoned call blames no other call, and forgets the abandoned one', () => {
    const quarantine = new Quarantine()
    for (let death = 0; death < 5; death += 1) {
      quarantine.noteDeath({ calls: ['1-0'], abandoned: ['2-0'], isBlameless: false })
      expect(quarantine.lossOf('1-0').disposition).toBe('again')
      expect(quarantine.lossOf('2-0').losses).toBe(0)
    }
  })
})
