import { describe, expect, it } from 'vitest'
import type { PlannedAttempt } from '../../rollout/index.ts'
import { planId, PlanQueue } from './pending-rollouts.ts'

const plan = (id: string): PlannedAttempt => ({
  kind: 'attempt',
  id,
  sample: 0,
  task: { index: 0, id: '0', data: null },
  attempt: 1,
})

describe('PlanQueue', () => {
  it('yields plans in order, without the removed ones', async () => {
    const queue = new PlanQueue()
    for (const id of ['a', 'b', 'c', 'd']) queue.push(plan(id))
    expect(queue.remove('b')).toMatchObject({ id: 'b' })
    expect(queue.remove('b')).toBeUndefined()
    queue.end()
    expect((await Array.fromAsync(queue)).map(planId)).toEqual(['a', 'c', 'd'])
  })

  it('wakes its reader repeatedly', async () => {
    const queue = new PlanQueue()
    const reader = queue[Symbol.asyncIterator]()
    for (const id of ['a', 'b', 'c']) {
      const next = reader.next()
      queue.push(plan(id))
      expect(await next).toMatchObject({ value: { id } })
    }
    const last = reader.next()
    queue.end()
    expect(await last).toEqual({ done: true, value: undefined })
  })

  it('does not yield plans that were removed while there was no reader', async () => {
    const queue = new PlanQueue()
    for (let round = 0; round < 1_000; round += 1) {
      queue.push(plan(String(round)))
      queue.remove(String(round))
    }
    queue.push(plan('last'))
    queue.end()
    expect((await Array.fromAsync(queue)).map(planId)).toEqual(['last'])
  })
})
