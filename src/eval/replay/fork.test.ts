import { expect, test } from 'vitest'
import type { PlannedRollout } from '../../rollout/index.ts'
import type { RolloutRecord } from '../../schema/index.ts'
import { forkedPlans, type Fork } from './fork.ts'

const task = { index: 3, id: 'three', data: {} }
const recording: Fork['recording'] = { purpose: 'fork', sessions: {} }
const fork: Fork = {
  from: { run: 'first', rollout: '3-0', turn: 2, attempt: 1, seed: 7 },
  task: { index: 3, id: 'three', digest: 'd', task: {} },
  recording,
  opening: { prompt: 'another one' },
  outputs: '/nowhere',
  asked: new Set(),
}

async function* planned(): AsyncGenerator<PlannedRollout, void, void> {
  const held = { record: { id: '3-0' } as RolloutRecord, leaf: null }
  yield { kind: 'held', task, held }
  yield { kind: 'attempt', id: '3-1', sample: 1, attempt: 1, task }
  yield { kind: 'settled', record: { id: '3-2' } as RolloutRecord }
}

test('plans of held rollouts get the recording too, in case they are replaced', async () => {
  const plans = await Array.fromAsync(forkedPlans(planned(), fork, true))
  const [held, attempt, settled] = plans
  for (const plan of [held, attempt]) expect(plan).toMatchObject({ recording, opening: { prompt: 'another one' } })
  const seeds = [held, attempt].map((plan) => plan && 'sampling' in plan && plan.sampling?.seed)
  expect(seeds).toEqual([expect.any(Number), expect.any(Number)])
  expect(seeds[0]).not.toBe(seeds[1])
  expect(settled).toEqual({ kind: 'settled', record: { id: '3-2' } })
})
