import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import {
  defineEnvironment,
  evaluate,
  findRuns,
  MillraceError,
  replayRun,
  rescoreRun,
  RunReader,
  z,
  type Backend,
} from 'millrace'
import { calls, ScriptedBackend, temporaryRuns, type Script } from 'millrace/testing'
import { describe, expect, test } from 'vitest'
import errand from '../fixtures/errand.ts'

const turns = (script: readonly Parameters<typeof calls>[0][]): Script => {
  return ({ messages }) => {
    const turn = messages.filter(({ role }) => role === 'assistant').length
    return turn < script.length ? calls(script[turn] ?? {}) : 'done'
  }
}

/** Answers as the script says until its turn `cutAt`; there it never answers, and the run is stopped. */
function cutOff(script: Script, cutAt: number, onCut: () => void): Backend {
  return new ScriptedBackend((request) => {
    if (request.messages.filter(({ role }) => role === 'assistant').length < cutAt) return script(request)
    onCut()
    return new Promise((_, reject) => request.signal.addEventListener('abort', () => reject(request.signal.reason)))
  })
}

async function sit(options: { root: string; log: string; backend: Backend; signal?: AbortSignal }): Promise<
  Awaited<ReturnType<ReturnType<typeof evaluate>['summary']>> & {
    records: { attempt: number; reward: number | null }[]
  }
> {
  const evaluation = evaluate({
    environment: errand,
    options: { log: options.log },
    model: { name: 'scripted', backends: [{ url: 'http://scripted.invalid' }], price: { input: 0, output: 1_000_000 } },
    backends: { scripted: [options.backend] },
    preflight: false,
    run: { root: options.root, name: 'errand' },
    ...(options.signal && { signal: options.signal }),
  })
  const records = await Array.fromAsync(evaluation)
  return { ...(await evaluation.summary()), records }
}

describe('an interrupted rollout', () => {
  test('resumes with its recorded replies and answers, and rebuilds its state', async () => {
    await using runs = await temporaryRuns()
    const log = join(runs.root, 'log')
    await writeFile(log, '')
    const script = turns([{ step: {}, search: {} }, { step: {} }, { step: {} }])
    const stop = new AbortController()
    const first = await sit({
      root: runs.root,
      log,
      backend: cutOff(script, 2, () => stop.abort()),
      signal: stop.signal,
    })
    expect(first).toMatchObject({ end: 'stopped', rollouts: 0 })

    const second = new ScriptedBackend(script)
    const resumed = await sit({ root: runs.root, log, backend: second })
    expect(resumed).toMatchObject({ end: 'complete', rollouts: 1 })
    expect(resumed.records[0]).toMatchObject({ attempt: 1, reward: 3 })
    // Turns 3 and 4 were asked for; 1 and 2 came from the journal, and what they cost is still counted.
    expect(second.requests).toHaveLength(2)
    expect(resumed.usage.calls).toBe(4)
    expect(resumed.cost).toBe(resumed.usage.output)
    // Steps were taken again to rebuild the state (2 + 3), the search was not (1).
    const entries = (await readFile(log, 'utf8')).trim().split('\n')
    expect(entries.filter((entry) => entry === 'step')).toHaveLength(5)
    expect(entries.filter((entry) => entry === 'search')).toHaveLength(1)

    using reader = RunReader.open(join(runs.root, 'errand'))
    expect(reader.nodes('0-0', 1).map(({ seq }) => seq)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8])
    expect(reader.integrity()).toEqual([])
  })

  test('starts over as a new attempt if it called a tool without a resume mode', async () => {
    await using runs = await temporaryRuns()
    const log = join(runs.root, 'log')
    await writeFile(log, '')
    const script = turns([{ unsafe: {} }, { step: {} }])
    const stop = new AbortController()
    await sit({ root: runs.root, log, backend: cutOff(script, 1, () => stop.abort()), signal: stop.signal })
    const backend = new ScriptedBackend(script)
    const resumed = await sit({ root: runs.root, log, backend })
    expect(resumed.records[0]).toMatchObject({ attempt: 2, reward: 1 })
    expect(backend.requests).toHaveLength(3)
    using reader = RunReader.open(join(runs.root, 'errand'))
    expect([...reader.events('attempt-abandoned')]).toHaveLength(1)
    // The evidence of the first attempt stays.
    expect(reader.nodes('0-0', 1).length).toBeGreaterThan(0)
  })

  test('a complete run makes no request when the command is repeated', async () => {
    await using runs = await temporaryRuns()
    const log = join(runs.root, 'log')
    const script = turns([{ step: {} }])
    await sit({ root: runs.root, log, backend: new ScriptedBackend(script) })
    const backend = new ScriptedBackend(script)
    const again = await sit({ root: runs.root, log, backend })
    expect(again).toMatchObject({ end: 'complete', rollouts: 1, records: [] })
    expect(backend.requests).toHaveLength(0)
  })
})

test('an invalid row may be corrected and is run by --retry-failed; a row that ran may not change', async () => {
  await using runs = await temporaryRuns()
  const sitWith = (rows: readonly unknown[], retryFailed = false) =>
    evaluate({
      environment: defineEnvironment({
        name: 'rows',
        task: z.object({ sum: z.string() }),
        tasks: () => rows,
        prompt: ({ task }) => task.sum,
        reward: {
          first: { weight: 0.7, score: () => 1 },
          second: { weight: 0.2, score: () => 1 },
          third: { weight: 0.1, score: () => 1 },
        },
      }),
      model: 'sim',
      attempts: 2,
      run: { root: runs.root, name: 'rows', retryFailed },
    }).summary()
  const first = await sitWith([{ sum: '1 + 1' }, { sum: 2 }])
  expect(first).toMatchObject({ rollouts: 4, scored: 2, outcomes: { env_error: 2 } })
  // Weights that add up to 1 make a reward of 1, and a pass.
  expect(first.score?.mean).toBe(1)
  expect(first.pass[0]?.atK).toBe(1)
  const second = await sitWith([{ sum: '1 + 1' }, { sum: '2 + 2' }], true)
  expect(second).toMatchObject({ end: 'complete', rollouts: 4, scored: 4 })
  await expect(sitWith([{ sum: '1 + 1' }, { sum: '3 + 3' }])).rejects.toMatchObject({ code: 'run_mismatch' })
})

test.each([
  ['whose backend refuses', { refused: true }, 'model_auth'],
  ['whose tasks are gone', { tasks: [] }, 'tasks_failed'],
  ['whose last task has changed', { tasks: [1, 2, 4] }, 'run_mismatch'],
  ['whose last task is gone', { tasks: [1, 2] }, 'run_mismatch'],
])('--retry-failed in a launch %s removes no result', async (_what, change, code) => {
  await using runs = await temporaryRuns()
  const sitWith = ({ tasks = [1, 2, 3], refused = false, retryFailed = true }) =>
    evaluate({
      environment: defineEnvironment({
        name: 'kept',
        task: z.number(),
        tasks: () => tasks,
        prompt: ({ task }) => String(task),
        reward: () => 1,
      }),
      model: { name: 'scripted', backends: [{ url: 'http://scripted.invalid' }], maxTries: 1 },
      backends: {
        scripted: [
          new ScriptedBackend(({ messages: [first] }) => {
            if (refused) throw new MillraceError('model_auth', 'the key is wrong')
            if (first?.content === '2' && !retryFailed) throw new MillraceError('model_rejected', 'not this one')
            return 'done'
          }),
        ],
      },
      run: { root: runs.root, name: 'kept', retryFailed },
    }).summary()
  expect(await sitWith({ retryFailed: false })).toMatchObject({ state: 'complete', rollouts: 3, scored: 2 })
  await expect(sitWith(change)).rejects.toMatchObject({ code })
  using reader = RunReader.open(join(runs.root, 'kept'))
  expect(reader.counts()).toMatchObject({ ended: 3, outcomes: { model_error: 1 } })
  expect((await findRuns(runs.root)).runs).toMatchObject([{ run: { state: 'complete' } }])
  expect(await sitWith({})).toMatchObject({ state: 'complete', rollouts: 3, scored: 3 })
})

test('the cost of a row that has become invalid stays counted', async () => {
  await using runs = await temporaryRuns()
  const sitWith = (maximum: number) =>
    evaluate({
      environment: defineEnvironment({
        name: 'stricter',
        task: z.number().max(maximum),
        tasks: () => [1, 2],
        prompt: ({ task }) => String(task),
        reward: ({ task }) => (task === 2 ? Number.NaN : 1),
      }),
      model: {
        name: 'scripted',
        backends: [{ url: 'http://scripted.invalid' }],
        price: { input: 0, output: 1_000_000 },
      },
      backends: { scripted: [new ScriptedBackend(() => 'done')] },
      preflight: false,
      run: { root: runs.root, name: 'stricter', retryFailed: maximum === 1 },
    }).summary()
  const first = await sitWith(2)
  expect(first).toMatchObject({ outcomes: { reward_error: 1 }, discarded: { attempts: 0 } })
  const second = await sitWith(1)
  expect(second).toMatchObject({ outcomes: { env_error: 1 }, discarded: { attempts: 1 } })
  expect((second.cost ?? 0) + second.discarded.costUsd).toBe(first.cost)
  using reader = RunReader.open(join(runs.root, 'stricter'))
  expect(reader.rollout('1-0')).toMatchObject({ attempt: 2, outcome: 'env_error', cost: 0 })
})

test.each([
  ['is scored again with the metrics and notes it has', 'reuse' as const, 1],
  ['starts over if its tools do not allow that, and how the first attempt ended stays told', undefined, 2],
])('a rollout whose reward failed %s', async (_what, resume, attempt) => {
  await using runs = await temporaryRuns()
  let made = 0
  const sitWith = (score: number, retryFailed: boolean) =>
    evaluate({
      environment: defineEnvironment({
        name: 'counted',
        task: z.object({}),
        tasks: () => [{}],
        prompt: () => 'Look it up.',
        tools: {
          look: {
            parameters: z.object({}),
            ...(resume && { resume }),
            run: (_, { metric, note }) => {
              made += 1
              metric('calls', made)
              note('seen', made)
              return 'found'
            },
          },
        },
        reward: ({ metric }) => {
          metric('judged', score)
          return score
        },
      }),
      model: { name: 'scripted', backends: [{ url: 'http://scripted.invalid' }] },
      backends: { scripted: [new ScriptedBackend(turns([{ look: {} }]))] },
      preflight: false,
      run: { root: runs.root, name: 'counted', retryFailed },
    }).summary()
  expect(await sitWith(Number.NaN, false)).toMatchObject({ outcomes: { reward_error: 1 } })
  expect(await sitWith(1, true)).toMatchObject({ end: 'complete', scored: 1, outcomes: { completed: 1 } })
  using reader = RunReader.open(join(runs.root, 'counted'))
  expect(reader.rollout('0-0')).toMatchObject({
    attempt,
    metrics: { calls: attempt, judged: 1 },
    info: { seen: attempt },
  })
  expect(reader.attempts('0-0')[0]?.end?.outcome).toBe('reward_error')
})

test.each([
  ['context_length', 'reuse', 1],
  ['agent_timeout', 'reuse', 1],
  ['agent_timeout', 'rerun', 3],
] as const)('a rollout that ended as %s keeps that end if its reward failed (%s)', async (outcome, resume, made) => {
  await using runs = await temporaryRuns()
  let calledTools = 0
  const environmentOf = (isBroken: boolean) =>
    defineEnvironment({
      name: 'spent',
      task: z.object({}),
      tasks: () => [{}],
      limits: { timeoutMs: outcome === 'agent_timeout' ? 1000 : 60_000 },
      prompt: () => 'Look it up.',
      tools: {
        look: {
          parameters: z.object({}),
          resume,
          run: async () => {
            calledTools += 1
            return isBroken && outcome === 'agent_timeout' ? await new Promise<never>(() => {}) : 'here'
          },
        },
      },
      reward: ({ outcome: end, truncated, answer }) => {
        if (isBroken) throw new Error('the grader is away')
        return end === outcome && truncated && answer === '' ? 0.5 : 1
      },
    })
  const sitWith = (isBroken: boolean) => {
    const backend = new ScriptedBackend(({ messages }) => {
      if (messages.at(-1)?.role !== 'tool') return calls({ look: {} })
      if (isBroken && outcome === 'context_length') throw new MillraceError('context_length', 'too long')
      return 'found'
    })
    const evaluation = evaluate({
      environment: environmentOf(isBroken),
      model: { name: 'scripted', backends: [{ url: 'http://scripted.invalid' }] },
      backends: { scripted: [backend] },
      preflight: false,
      run: { root: runs.root, name: 'spent', retryFailed: !isBroken },
    })
    return evaluation.summary().then((summary) => ({ ...summary, asked: backend.requests.length }))
  }
  expect(await sitWith(true)).toMatchObject({ outcomes: { reward_error: 1 } })
  {
    using reader = RunReader.open(join(runs.root, 'spent'))
    expect(reader.rollout('0-0')).toMatchObject({ outcome: 'reward_error', agentOutcome: outcome, truncated: false })
    const rescoring = await rescoreRun(reader, { environment: environmentOf(false) })
    expect(await Array.fromAsync(rescoring)).toMatchObject([{ outcome, after: 0.5 }])
    const [report] = await Array.fromAsync(replayRun(reader, { environment: environmentOf(true) }))
    expect(report).toMatchObject({ verdict: 'identical' })
  }
  expect(await sitWith(false)).toMatchObject({ end: 'complete', asked: 0, score: { mean: 0.5 } })
  expect(calledTools).toBe(made)
  using reader = RunReader.open(join(runs.root, 'spent'))
  const record = reader.rollout('0-0')
  expect(record).toMatchObject({ attempt: 1, outcome, truncated: true, turns: 1 })
  expect(record).not.toHaveProperty('agentOutcome')
})

test.each([
  ['in a tool that cannot be repeated', { tool: true, update: false }, { attempt: 2, outcome: 'completed', turns: 2 }],
  ['in update', { tool: false, update: true }, { attempt: 1, outcome: 'agent_timeout', turns: 1 }],
])('a rollout that timed out %s is scored or starts over if its reward failed', async (_, hangs, expected) => {
  await using runs = await temporaryRuns()
  const sitWith = (isBroken: boolean) =>
    evaluate({
      environment: defineEnvironment({
        name: 'late',
        task: z.object({}),
        tasks: () => [{}],
        limits: { timeoutMs: 1000 },
        prompt: () => 'Look it up.',
        tools: {
          look: {
            parameters: z.object({}),
            run: async () => (isBroken && hangs.tool ? await new Promise<never>(() => {}) : 'here'),
          },
        },
        update: async () => {
          if (isBroken && hangs.update) await new Promise<never>(() => {})
        },
        reward: () => {
          if (isBroken) throw new Error('the grader is away')
          return 1
        },
      }),
      model: { name: 'scripted', backends: [{ url: 'http://scripted.invalid' }] },
      backends: { scripted: [new ScriptedBackend(turns(hangs.tool ? [{ look: {} }] : []))] },
      preflight: false,
      run: { root: runs.root, name: 'late', retryFailed: !isBroken },
    }).summary()
  expect(await sitWith(true)).toMatchObject({ outcomes: { reward_error: 1 } })
  {
    using reader = RunReader.open(join(runs.root, 'late'))
    const cutOffIn = hangs.tool ? 'tool look' : 'update'
    expect(reader.rollout('0-0')).toMatchObject({ agentOutcome: 'agent_timeout', cutOffIn })
  }
  expect(await sitWith(false)).toMatchObject({ end: 'complete' })
  using reader = RunReader.open(join(runs.root, 'late'))
  expect(reader.rollout('0-0')).toMatchObject(expected)
})

test('state changes beside a tool that hung are rebuilt before the rollout is scored', async () => {
  await using runs = await temporaryRuns()
  const environmentOf = (isBroken: boolean) =>
    defineEnvironment({
      name: 'beside',
      task: z.object({}),
      tasks: () => [{}],
      limits: { timeoutMs: 500 },
      setup: () => ({ steps: 0 }),
      prompt: () => 'Go.',
      tools: {
        wait: { parameters: z.object({}), resume: 'reuse', run: () => new Promise<string>(() => {}) },
        step: {
          parameters: z.object({}),
          resume: 'rerun',
          run: (_, { state }) => {
            state.steps += 1
            return 'done'
          },
        },
      },
      reward: ({ state }) => {
        if (isBroken) throw new Error('the grader is away')
        return state.steps
      },
    })
  const sitWith = (isBroken: boolean) =>
    evaluate({
      environment: environmentOf(isBroken),
      model: { name: 'scripted', backends: [{ url: 'http://scripted.invalid' }] },
      backends: { scripted: [new ScriptedBackend(turns([{ wait: {}, step: {} }]))] },
      preflight: false,
      run: { root: runs.root, name: 'beside', retryFailed: !isBroken },
    }).summary()
  expect(await sitWith(true)).toMatchObject({ outcomes: { reward_error: 1 } })
  expect(await sitWith(false)).toMatchObject({ outcomes: { agent_timeout: 1 }, score: { mean: 1 } })
  using reader = RunReader.open(join(runs.root, 'beside'))
  expect(reader.rollout('0-0')).toMatchObject({ attempt: 1, turns: 1, toolCalls: 0, reward: 1 })
  const [report] = await Array.fromAsync(replayRun(reader, { environment: environmentOf(false) }))
  expect(report).toMatchObject({ verdict: 'identical' })
})
