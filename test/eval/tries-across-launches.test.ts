import {
  defineEnvironment,
  evaluate,
  MillraceError,
  RunReader,
  z,
  type EvaluateOptions,
  type GroupPolicy,
  type Summary,
} from 'millrace'
import { ScriptedBackend, temporaryRuns } from 'millrace/testing'
import { join } from 'node:path'
import { expect, test } from 'vitest'

interface Launch extends Pick<EvaluateOptions, 'attempts' | 'retries' | 'maxCostUsd'> {
  readonly root: string
  /** Stopped, as by Ctrl-C twice, when this attempt at rollout 0-1 asks its model. */
  readonly stopAt?: number
  /** Drained, as by Ctrl-C, when this attempt at rollout 0-1 asks its model. */
  readonly drainAt?: number
  readonly retryFailed?: boolean
  /** What an attempt at 0-1 fails with. */
  readonly failure?: 'model' | 'reward'
  readonly groupPolicy?: GroupPolicy
}

/** One task; of its attempts the second never succeeds. Each turn costs two dollars. */
async function sit({
  root,
  stopAt,
  drainAt,
  retryFailed = false,
  failure = 'model',
  groupPolicy = 'replace',
  ...options
}: Launch): Promise<Summary> {
  const stop = new AbortController()
  const backend = new ScriptedBackend(({ messages: [first], signal }) => {
    const [sample, attempt] = String(first?.content).split(' ').map(Number)
    if (sample === 1 && attempt === stopAt) {
      stop.abort()
      return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
    }
    if (sample === 1 && attempt === drainAt) evaluation.drain()
    if (sample === 1 && failure === 'model') throw new MillraceError('model_rejected', 'not this one')
    const usage = { calls: 1, input: 0, cachedInput: 0, output: 2, reasoning: 0 }
    return { message: { role: 'assistant', content: 'done' }, finishReason: 'stop', usage }
  })
  const evaluation = evaluate({
    environment: defineEnvironment({
      name: 'tried',
      task: z.object({}),
      tasks: () => [{}],
      prompt: ({ rollout }) => `${rollout.sample} ${rollout.attempt}`,
      reward: ({ rollout }) => (rollout.sample === 1 ? Number.NaN : 1),
      groupPolicy,
    }),
    model: {
      name: 'scripted',
      maxTries: 1,
      backends: [{ url: 'http://scripted.invalid' }],
      price: { input: 0, output: 1_000_000 },
    },
    backends: { scripted: [backend] },
    attempts: 2,
    retries: 1,
    preflight: false,
    signal: stop.signal,
    run: { root, name: 'tried', retryFailed },
    ...options,
  })
  return await evaluation.summary()
}

function attemptsIn(root: string): (string | undefined)[] {
  using reader = RunReader.open(join(root, 'tried'))
  return reader.attempts('0-1').map(({ end }) => end?.outcome)
}

test.each([2, 3, 4])('attempts are counted across launches, also if interrupted in attempt %i', async (stopAt) => {
  await using runs = await temporaryRuns()
  const { root } = runs
  expect(await sit({ root, stopAt })).toMatchObject({ end: 'stopped', rollouts: 0 })
  // One retry, one replacement, and one retry of that.
  expect(await sit({ root })).toMatchObject({ end: 'complete', rollouts: 2, scored: 0, voided: 1 })
  expect(attemptsIn(root)).toHaveLength(4)
  // Whoever asks for another try of what failed gets as many again.
  expect(await sit({ root, retryFailed: true, stopAt: 6 })).toMatchObject({ end: 'stopped', rollouts: 0 })
  expect(await sit({ root })).toMatchObject({ end: 'complete', rollouts: 2, scored: 0, voided: 1 })
  expect(attemptsIn(root)).toHaveLength(8)
})

test('a failed group member is not replaced once --max-cost is spent, but in the next launch', async () => {
  await using runs = await temporaryRuns()
  const { root } = runs
  const failure = 'reward'
  const spent = await sit({ root, failure, maxCostUsd: 4 })
  expect(spent).toMatchObject({ end: 'max_cost', state: 'unfinished', rollouts: 0 })
  expect(attemptsIn(root)).toEqual(['reward_error'])
  // With more to spend, it is replaced once.
  expect(await sit({ root, failure, maxCostUsd: 100 })).toMatchObject({ end: 'complete', rollouts: 2, voided: 1 })
  expect(attemptsIn(root)).toHaveLength(2)
})

test('a failed group member is not replaced while a run drains, but in the next launch', async () => {
  await using runs = await temporaryRuns()
  const { root } = runs
  const failure = 'reward'
  expect(await sit({ root, failure, retries: 2, drainAt: 1 })).toMatchObject({
    end: 'drained',
    state: 'unfinished',
    rollouts: 0,
  })
  expect(attemptsIn(root)).toEqual(['reward_error'])
  // Replaced twice, as if nothing had been between.
  expect(await sit({ root, failure, retries: 2 })).toMatchObject({ end: 'complete', rollouts: 2, voided: 1 })
  expect(attemptsIn(root)).toHaveLength(3)
})

test('a failed rollout does not start over while a run drains, but in the next launch', async () => {
  await using runs = await temporaryRuns()
  const { root } = runs
  expect(await sit({ root, retries: 2, drainAt: 1 })).toMatchObject({ end: 'drained', state: 'unfinished' })
  expect(attemptsIn(root)).toEqual(['model_error'])
  expect(await sit({ root, retries: 2, drainAt: 2 })).toMatchObject({ end: 'drained', state: 'unfinished' })
  expect(attemptsIn(root)).toHaveLength(2)
  // Its third attempt is the last, as if nothing had been between; then it is replaced, twice.
  expect(await sit({ root, retries: 2 })).toMatchObject({ end: 'complete', rollouts: 2, voided: 1 })
  expect(attemptsIn(root)).toHaveLength(9)
})

test('a rollout that fails its last attempt while a run drains gets its result', async () => {
  await using runs = await temporaryRuns()
  const { root } = runs
  const drained = { root, groupPolicy: 'keep', retries: 1 } as const
  expect(await sit({ ...drained, drainAt: 1 })).toMatchObject({ end: 'drained', state: 'unfinished', rollouts: 1 })
  expect(await sit({ ...drained, drainAt: 2 })).toMatchObject({ rollouts: 2, outcomes: { model_error: 1 } })
  expect(attemptsIn(root)).toHaveLength(2)
})

test('--retry-failed removes no result that --max-cost cannot pay for', async () => {
  await using runs = await temporaryRuns()
  const { root } = runs
  const complete = { state: 'complete', rollouts: 2, voided: 1 }
  // Two dollars for 0-0, and nothing for what never was answered.
  expect(await sit({ root })).toMatchObject({ ...complete, end: 'complete' })
  expect(await sit({ root, retryFailed: true, maxCostUsd: 2 })).toMatchObject({ ...complete, end: 'max_cost' })
  expect(attemptsIn(root)).toHaveLength(4)
  expect(await sit({ root, retryFailed: true, maxCostUsd: 3 })).toMatchObject({ ...complete, end: 'complete' })
  expect(attemptsIn(root)).toHaveLength(8)
})

test('tries of model calls are counted across launches', async () => {
  await using runs = await temporaryRuns()
  const { root } = runs
  const answered = { message: { role: 'assistant', content: 'done' }, finishReason: 'stop' } as const
  const usage = { calls: 1, input: 0, cachedInput: 0, output: 2, reasoning: 0 }
  const sitDown = async (send: () => void): Promise<Summary> => {
    const evaluation = evaluate({
      environment: defineEnvironment({
        name: 'again',
        task: z.object({}),
        tasks: () => [{}, {}],
        prompt: () => 'Hello',
        reward: () => 1,
      }),
      model: { name: 'scripted', backends: [{ url: 'http://scripted.invalid' }] },
      backends: {
        scripted: [
          new ScriptedBackend(() => {
            evaluation.drain()
            send()
            return { ...answered, usage }
          }),
        ],
      },
      concurrency: 1,
      preflight: false,
      run: { root, name: 'again' },
    })
    return await evaluation.summary()
  }
  let sent = 0
  const failFirst = (): void => {
    sent += 1
    if (sent === 1) throw new MillraceError('model_malformed', 'not this time')
  }
  expect(await sitDown(failFirst)).toMatchObject({ rollouts: 1, tries: { calls: 1, tries: 2 } })
  expect(await sitDown(failFirst)).toMatchObject({ rollouts: 2, tries: { calls: 2, tries: 3 } })
})
