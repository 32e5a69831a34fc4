import { defineEnvironment, evaluate, MillraceError, z, type Evaluation, type GroupPolicy } from 'millrace'
import { runScripted, ScriptedBackend, temporaryRuns } from 'millrace/testing'
import { describe, expect, test } from 'vitest'

/** Each member's own score is its sample; the group adds how many members there are. */
const environment = (groupPolicy: GroupPolicy) =>
  defineEnvironment({
    name: 'group',
    task: z.object({ question: z.string() }),
    tasks: () => [{ question: 'one' }, { question: 'two' }],
    prompt: ({ task, rollout }) => `${task.question} ${rollout.sample} attempt ${rollout.attempt}`,
    reward: {
      own: ({ rollout }) => rollout.sample,
      size: { weight: 10, group: ({ members }) => members.map(() => members.length) },
    },
    groupPolicy,
  })

const fail = (): never => {
  throw new MillraceError('model_rejected', 'refused')
}
/** Sample 1 of the first task fails in its first attempts. */
const failing =
  (attempts: number) =>
  ({ messages }: { messages: readonly { content: unknown }[] }): string => {
    const asked = String(messages[0]?.content)
    const attempt = Number(asked.split(' ').at(-1))
    return asked.startsWith('one 1 ') && attempt <= attempts ? fail() : 'fine'
  }

describe('a group with a failed member', () => {
  test('keep: the other members are scored without it', async () => {
    const { records } = await runScripted({
      environment: environment('keep'),
      attempts: 3,
      retries: 0,
      script: failing(9),
    })
    expect(records.map(({ reward }) => reward)).toEqual([20, null, 22, 30, 31, 32])
    expect(records[1]).toMatchObject({ outcome: 'model_error' })
  })

  test('void: no member of the group gets a reward; other groups do', async () => {
    const { records, summary } = await runScripted({
      environment: environment('void'),
      attempts: 3,
      retries: 0,
      script: failing(9),
    })
    expect(records.map(({ reward }) => reward)).toEqual([null, null, null, 30, 31, 32])
    expect(records.map(({ voided }) => voided)).toEqual([true, undefined, true, undefined, undefined, undefined])
    expect(summary).toMatchObject({ scored: 3, voided: 2 })
  })

  test('replace: the member runs again until it succeeds', async () => {
    const { records } = await runScripted({
      environment: environment('replace'),
      attempts: 3,
      retries: 3,
      concurrency: 2,
      script: failing(2),
    })
    expect(records.map(({ reward }) => reward)).toEqual([30, 31, 32, 30, 31, 32])
    expect(records[1]?.attempt).toBe(3)
  })

  test('replace: when its attempts are exhausted the group is void', async () => {
    const { records } = await runScripted({
      environment: environment('replace'),
      attempts: 3,
      retries: 1,
      script: failing(9),
    })
    expect(records.map(({ reward }) => reward)).toEqual([null, null, null, 30, 31, 32])
  })
})

test('finished members of a group stay finished if the run stops while a failed member is replaced', async () => {
  await using runs = await temporaryRuns()
  const scored: string[] = []
  let isStuck = true
  const stuck = Promise.withResolvers<void>()
  const backend = new ScriptedBackend(({ messages, signal }) => {
    const asked = String(messages[0]?.content)
    if (!isStuck || asked.startsWith('0-2')) return 'fine'
    stuck.resolve()
    return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
  })
  const sit = (): Evaluation =>
    evaluate({
      environment: defineEnvironment({
        name: 'replaced',
        task: z.object({}),
        tasks: () => [{}],
        prompt: ({ rollout }) => {
          if (rollout.sample < 2 && rollout.attempt === 1) throw new Error('not yet')
          return `${rollout.id} attempt ${rollout.attempt}`
        },
        reward: ({ rollout }) => {
          scored.push(`${rollout.id} attempt ${rollout.attempt}`)
          return 1
        },
        groupPolicy: 'replace',
      }),
      model: { name: 'scripted', maxTries: 1, backends: [{ url: 'http://scripted.invalid' }] },
      backends: { scripted: [backend] },
      attempts: 3,
      concurrency: 1,
      preflight: false,
      run: { root: runs.root, name: 'replaced' },
    })
  const first = sit()
  await stuck.promise
  first.stop()
  expect(await first.summary()).toMatchObject({ rollouts: 0, discarded: { attempts: 2 } })
  isStuck = false
  expect(await sit().summary()).toMatchObject({ rollouts: 3, scored: 3, discarded: { attempts: 2 } })
  expect(scored.toSorted()).toEqual(['0-0 attempt 2', '0-1 attempt 2', '0-2 attempt 1'])
})

test('a group reward that throws gives its members a reward_error, and the run continues', async () => {
  const broken = defineEnvironment({
    name: 'broken-group',
    task: z.object({ index: z.number() }),
    tasks: () => [{ index: 0 }, { index: 1 }],
    prompt: () => 'go',
    reward: {
      group: {
        group: ({ members, task }) => {
          if (task.index === 0) throw new Error('cannot compare')
          return members.map(() => 1)
        },
      },
    },
  })
  const { records } = await runScripted({ environment: broken, attempts: 2, script: () => 'fine' })
  expect(records.map(({ outcome, reward }) => [outcome, reward])).toEqual([
    ['reward_error', null],
    ['reward_error', null],
    ['completed', 1],
    ['completed', 1],
  ])
  expect(records[0]?.error?.message).toMatch(/cannot compare/)
})

test('--retry-failed runs the failed members again and scores their whole groups again', async () => {
  await using runs = await temporaryRuns()
  const run = async (attemptsThatFail: number, retryFailed: boolean) => {
    const evaluation = evaluate({
      environment: environment('void'),
      model: { name: 'scripted', maxTries: 1, backends: [{ url: 'http://scripted.invalid' }] },
      backends: { scripted: [new ScriptedBackend(failing(attemptsThatFail))] },
      attempts: 3,
      retries: 0,
      preflight: false,
      run: { root: runs.root, name: 'again', retryFailed },
    })
    const records = await Array.fromAsync(evaluation)
    return { ids: records.map(({ id }) => id).sort(), summary: await evaluation.summary() }
  }
  const first = await run(1, false)
  expect(first.summary).toMatchObject({ rollouts: 6, scored: 3, voided: 2 })
  const second = await run(1, true)
  expect(second.ids).toEqual(['0-0', '0-1', '0-2'])
  expect(second.summary).toMatchObject({ rollouts: 6, scored: 6, voided: 0 })
  expect(second.summary.score?.mean).toBe(31)
})

test.each(['per rollout', 'per group'] as const)(
  '--retry-failed after a reward failed %s scores again without calling the model',
  async (kind) => {
    await using runs = await temporaryRuns()
    let isBroken = true
    const score = (): number => {
      if (isBroken) throw new Error('the scorer is down')
      return 1
    }
    const backend = new ScriptedBackend(() => 'fine')
    const run = async () => {
      const evaluation = evaluate({
        environment: defineEnvironment({
          name: 'rescored',
          task: z.object({ index: z.number() }),
          tasks: () => [{ index: 0 }, { index: 1 }],
          prompt: ({ rollout }) => rollout.id,
          reward: {
            score: kind === 'per rollout' ? score : { group: ({ members }) => members.map(score) },
          },
        }),
        model: { name: 'scripted', backends: [{ url: 'http://scripted.invalid' }] },
        backends: { scripted: [backend] },
        attempts: 2,
        preflight: false,
        run: { root: runs.root, name: 'rescored', retryFailed: !isBroken },
      })
      return await evaluation.summary()
    }
    expect(await run()).toMatchObject({ scored: 0, outcomes: { reward_error: 4 } })
    expect(backend.requests).toHaveLength(4)
    isBroken = false
    expect(await run()).toMatchObject({ scored: 4, outcomes: { completed: 4, reward_error: 0 }, usage: { calls: 4 } })
    expect(backend.requests).toHaveLength(4)
  },
)
