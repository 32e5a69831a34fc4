import { noServers } from '../../../src/tools/index.ts'
import type { RewardContext } from '../../../src/env/define/context.ts'

type Context<Task> = RewardContext<Task, undefined, object>

/** The context of a reward whose rollout answered `42`: without children and judges, unless they are given. */
export function rewardContext<Task>(task: Task, parts: Partial<Context<Task>> = {}): Context<Task> {
  return {
    task,
    options: {},
    state: undefined,
    rollout: { id: '0-0', attempt: 1, sample: 0, seed: 1 },
    budget: { turnsLeft: 1, tokensLeft: 1, costLeftUsd: 1, workingMsLeft: 1, wallMsLeft: 1 },
    signal: new AbortController().signal,
    servers: noServers,
    toolRepairs: 0,
    child: () => Promise.reject(new Error('no children here')),
    metric: () => {},
    note: () => {},
    messages: [],
    answer: '42',
    outcome: 'completed',
    truncated: false,
    judge: () => Promise.reject(new Error('no judge here')),
    ...parts,
  }
}
