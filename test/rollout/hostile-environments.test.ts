import { setImmediate as nextTurn } from 'node:timers/promises'
import { defineEnvironment, evaluate, MillraceError, toolLoop, z, type Json } from 'millrace'
import { calls, runScripted, ScriptedBackend, temporaryRuns } from 'millrace/testing'
import { describe, expect, test } from 'vitest'
import { HurriedClock, longMs } from '../support/fast-clock.ts'

const task = z.object({ index: z.number() })
const tasks = () => [{ index: 0 }, { index: 1 }]
const prompt = () => 'go'
const never = (): Promise<never> => new Promise(() => {})

describe('a mistake of an environment fails its rollouts, never the run', () => {
  test.each([
    ['a note that is not JSON', { note: 10n as never }],
    ['a note that is a function', { note: (() => 1) as never }],
    ['a metric that is not a number', { metric: Number.NaN }],
  ])('%s', async (_, wrong: { note?: Json; metric?: number }) => {
    const environment = defineEnvironment({
      name: 'noting',
      task,
      tasks,
      prompt,
      reward: ({ task: { index }, note, metric }) => {
        if (index === 0 && wrong.note !== undefined) note('wrong', wrong.note)
        if (index === 0 && wrong.metric !== undefined) metric('wrong', wrong.metric)
        return 1
      },
    })
    const { records, summary } = await runScripted({ environment, script: () => 'fine' })
    expect(records.map(({ outcome, reward }) => [outcome, reward])).toEqual([
      ['reward_error', null],
      ['completed', 1],
    ])
    expect(summary.score?.mean).toBe(1)
  })

  // As JavaScript would do it, and JSON that nobody checked.
  const unchecked = (json: string): never => JSON.parse(json) as never
  const throwing = (error: MillraceError) => () => {
    throw error
  }
  const ownBudget = new MillraceError('budget_exhausted', 'my searches are used up')
  test.each([
    ['a budget of its own, in the agent', { agent: async () => throwing(ownBudget)() }, 'agent_error'],
    ['a budget of its own, in setup', { setup: throwing(ownBudget) }, 'env_error'],
    ['a budget of its own, in prompt', { prompt: throwing(ownBudget) }, 'env_error'],
    ['a budget of its own, in update', { update: throwing(ownBudget) }, 'agent_error'],
    ['a budget of its own, in a context policy', { contextPolicy: throwing(ownBudget) }, 'agent_error'],
    [
      'an error whose data cannot be written down',
      { update: throwing(new MillraceError('agent_failed', 'too many', { data: { count: 10n as never } })) },
      'agent_error',
    ],
    [
      'an assistant message without content',
      { update: () => ({ messages: [unchecked('{"role":"assistant"}')], end: true }) },
      'completed',
    ],
    [
      'a message whose content is no content',
      { update: () => ({ messages: [unchecked('{"role":"assistant","content":{}}')] }) },
      'agent_error',
    ],
    [
      'an end that is misspelt',
      { update: () => ({ ends: true }) },
      'agent_error',
      '`ends` is not known; did you mean `end`?',
    ],
    [
      'a word that is none',
      { update: () => 'end' },
      'agent_error',
      'update: it must return nothing or { messages, end }',
    ],
    [
      'a condition in place of a word',
      { update: () => false },
      'agent_error',
      'not false: { end: true } ends the rollout, { messages } continues it, and undefined continues it if the reply had tool calls',
    ],
    [
      'messages that are none',
      { update: () => ({ messages: 'go on' }) },
      'agent_error',
      'update: messages: expected a list of messages',
    ],
    [
      'a context that is none',
      { contextPolicy: () => undefined },
      'agent_error',
      'contextPolicy: expected a list of messages',
    ],
    [
      'a context policy that throws',
      {
        contextPolicy: () => {
          throw new RangeError('no room')
        },
      },
      'agent_error',
      'contextPolicy threw RangeError',
    ],
    [
      'a message that is changed afterwards',
      {
        update: ({ messages }: { messages: readonly object[] }) => {
          Object.assign(messages.at(-1) ?? {}, { content: 5 })
        },
      },
      'env_error',
    ],
  ])('%s', async (_, wrong: object, outcome, message = '') => {
    const environment = (more: object) =>
      defineEnvironment({ name: 'odd', task, tasks: () => [{ index: 0 }], prompt, reward: () => 1, ...more })
    const { records, summary } = await runScripted({ environment: environment(wrong), script: () => 'fine' })
    expect(records.map((record) => record.outcome)).toEqual([outcome])
    expect(records[0]?.error?.message ?? '').toContain(message)
    expect(summary.end).toBe('complete')
  })

  test.each([
    ['{"role":"assistant"}', 'completed'],
    ['{"role":"assistant","content":[null]}', 'model_error'],
  ])('a custom backend that replies %s', async (reply, outcome) => {
    const environment = defineEnvironment({ name: 'odd', task, tasks, prompt, reward: () => 1 })
    const script = () => unchecked(reply)
    const { records } = await runScripted({ environment, retries: 0, script })
    expect(records.map((record) => record.outcome)).toEqual([outcome, outcome])
  })

  test.each(['rollout', 'group'])('a reward of a %s that reverses the conversation', async (kind) => {
    // As JavaScript would do it, which has no `readonly`.
    const turnRound = (messages: readonly unknown[]): number => Array.prototype.reverse.call(messages).length
    const environment = defineEnvironment({
      name: 'backwards',
      task,
      tasks,
      prompt,
      reward: {
        backwards:
          kind === 'rollout'
            ? ({ messages }) => turnRound(messages)
            : { group: ({ members }) => members.map(({ messages }) => turnRound(messages)) },
      },
    })
    const { records } = await runScripted({ environment, script: () => 'fine' })
    expect(records).toHaveLength(2)
    for (const { outcome, messages } of records) {
      expect(outcome).toBe('reward_error')
      expect(messages.map(({ role }) => role)).toEqual(['user', 'assistant'])
    }
  })

  test.each(['setup', 'agent', 'tool', 'reward', 'teardown'])(
    'a value that cannot be shown as text, thrown by %s',
    async (where) => {
      const speechless = (here: string): void => {
        if (here === where) throw Object.create(null)
      }
      const environment = defineEnvironment({
        name: 'speechless',
        task,
        tasks,
        setup: () => speechless('setup'),
        prompt,
        tools: { look: { parameters: z.object({}), run: () => speechless('tool') } },
        agent: async (context) => {
          speechless('agent')
          await toolLoop()(context)
        },
        reward: () => {
          speechless('reward')
          return 1
        },
        teardown: () => speechless('teardown'),
      })
      const { records } = await runScripted({
        environment,
        script: ({ messages }) => (messages.at(-1)?.role === 'user' ? calls({ look: {} }) : 'fine'),
      })
      expect(records).toHaveLength(2)
      const outcome = {
        setup: 'env_error',
        agent: 'agent_error',
        tool: 'completed',
        reward: 'reward_error',
        teardown: 'env_error',
      }[where]
      const said = records.map((record) => [record.outcome, record.error?.message ?? record.toolFaults?.[0]?.message])
      const words = expect.stringContaining('a value that cannot be shown as text')
      expect(said).toEqual([
        [outcome, words],
        [outcome, words],
      ])
    },
  )

  test('an agent that continues after its end cannot change the messages of its reward or send requests', async () => {
    const late = Promise.withResolvers<void>()
    let asked: Promise<unknown> | undefined
    const environment = defineEnvironment({
      name: 'late',
      task,
      tasks: () => [{ index: 0 }],
      prompt,
      agent: async ({ turn, append, tools }) => {
        await turn()
        setImmediate(() => {
          append({ role: 'user', content: 'one more thing' })
          asked = Promise.allSettled([turn(), tools.call([])])
          late.resolve()
        })
      },
      reward: async ({ messages }) => {
        await late.promise
        expect(await asked).toMatchObject([{ reason: { code: 'cancelled' } }, { reason: { code: 'cancelled' } }])
        return messages.length
      },
    })
    const { records, backend } = await runScripted({ environment, script: () => 'fine' })
    expect(records[0]).toMatchObject({ outcome: 'completed', reward: 2 })
    expect(backend.requests).toHaveLength(1)
  })

  test('a group reward that never answers ends at its timeout', async () => {
    const environment = defineEnvironment({
      name: 'stuck-group',
      task,
      tasks,
      prompt,
      reward: { stuck: { group: never } },
    })
    const { records } = await runScripted({
      environment,
      attempts: 2,
      limits: { tailMs: 50, wallTimeoutMs: 10_000 },
      script: () => 'fine',
    })
    expect(new Set(records.map(({ outcome }) => outcome))).toEqual(new Set(['reward_error']))
  })

  test.each([
    ['later', Promise.resolve()],
    ['at once', undefined],
  ])('a part of the reward is aborted when another part failed %s, before teardown', async (_, when) => {
    const received: string[] = []
    const environment = defineEnvironment({
      name: 'parts',
      task,
      tasks: () => [{ index: 0 }],
      setup: () => received,
      teardown: () => void received.push('teardown'),
      prompt,
      reward: {
        working: ({ signal }) =>
          new Promise(() => {
            signal.addEventListener('abort', () => received.push(String(signal.reason.message)))
          }),
        failing: () => {
          const fail = (): never => {
            throw new Error('wrong')
          }
          return when ? when.then(fail) : fail()
        },
      },
    })
    const { records } = await runScripted({ environment, script: () => 'fine' })
    expect(records).toMatchObject([{ outcome: 'reward_error' }])
    expect(received).toEqual([expect.stringContaining('reward "failing" threw Error'), 'teardown'])
  })

  test('a synchronous agent that throws gives an agent_error, not a crash', async () => {
    const environment = defineEnvironment({
      name: 'hasty',
      task,
      tasks,
      prompt,
      agent: () => {
        throw new Error('at once')
      },
      reward: () => 1,
    })
    const { records } = await runScripted({ environment, script: () => 'fine' })
    expect(records.map(({ outcome }) => outcome)).toEqual(['agent_error', 'agent_error'])
  })

  test('a task source that never answers does not keep a run from stopping or draining', async () => {
    for (const way of ['stop', 'drain'] as const) {
      const environment = defineEnvironment({
        name: 'waiting',
        task,
        async *tasks() {
          yield { index: 0 }
          await never()
        },
        prompt,
        reward: () => 1,
      })
      await using runs = await temporaryRuns()
      const evaluation = evaluate({
        environment,
        model: 'sim',
        preflight: false,
        run: { root: runs.root },
      })
      for await (const record of evaluation) {
        expect(record.outcome).toBe('completed')
        evaluation[way]()
      }
      expect((await evaluation.summary()).rollouts).toBe(1)
    }
  })

  test('a setup that finishes after its timeout is torn down', async () => {
    const opened: number[] = []
    const closed: unknown[] = []
    const late = Promise.withResolvers<void>()
    const environment = defineEnvironment({
      name: 'late',
      task,
      tasks: () => [{ index: 0 }],
      setup: async () => {
        await late.promise
        opened.push(1)
        return 'a sandbox'
      },
      prompt,
      teardown: ({ state }) => {
        closed.push(state)
      },
      reward: () => 1,
    })
    const { records } = await runScripted({
      environment,
      retries: 0,
      limits: { wallTimeoutMs: 60, tailMs: 20 },
      script: () => 'fine',
    })
    expect(records[0]?.outcome).toBe('infra_timeout')
    late.resolve()
    await expect.poll(() => closed).toContain('a sandbox')
    expect(opened).toEqual([1])
  })
})

test('a tool that times out cancels the child it started', async () => {
  const ended: string[] = []
  const environment = defineEnvironment({
    name: 'parent',
    task,
    tasks: () => [{ index: 0 }],
    prompt,
    tools: {
      delegate: {
        parameters: z.object({}),
        timeoutMs: 50,
        run: async (_, { child }) => {
          const { outcome } = await child({ prompt: 'work for ever', tools: [] })
          ended.push(outcome)
          return outcome
        },
      },
    },
    reward: () => 1,
  })
  const { records } = await runScripted({
    environment,
    script: ({ messages, signal }) => {
      if (messages[0]?.content === 'work for ever') {
        return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
      }
      return messages.at(-1)?.role === 'tool' ? 'done' : calls({ delegate: {} })
    },
  })
  expect(records[0]).toMatchObject({ outcome: 'completed', toolErrors: 1 })
  expect(ended).toEqual(['cancelled'])
})

describe('the cost limit', () => {
  const environment = defineEnvironment({
    name: 'costly',
    task,
    *tasks() {
      for (let index = 0; index < 200; index += 1) yield { index }
    },
    prompt,
    reward: () => 1,
  })
  const dear = { input: 0, output: 1_000_000 }
  const reply = () => ({
    message: { role: 'assistant' as const, content: 'x' },
    finishReason: 'stop' as const,
    usage: { calls: 1, input: 0, cachedInput: 0, output: 4, reasoning: 0 },
  })

  test('when reached, nothing new starts, in this launch or the next', async () => {
    await using runs = await temporaryRuns()
    const sit = () =>
      evaluate({
        environment,
        model: { name: 'dear', price: dear, backends: [{ url: 'http://scripted.invalid' }] },
        backends: { dear: [new ScriptedBackend(reply)] },
        concurrency: 5,
        maxCostUsd: 10,
        preflight: false,
        run: { root: runs.root, name: 'dear' },
      }).summary()
    const first = await sit()
    expect(first.end).toBe('max_cost')
    // Three are enough; those that ran beside them end as well.
    expect(first.rollouts).toBeGreaterThanOrEqual(3)
    expect(first.rollouts).toBeLessThanOrEqual(3 + 5)
    const second = await sit()
    expect(second).toMatchObject({ end: 'max_cost', rollouts: first.rollouts })
  })

  test.for([
    ['', 'max_cost'],
    [', after a drain either', 'drained'],
  ])('when reached, failed rollouts are not retried%s', async ([drained, end]) => {
    let asked = 0
    await using runs = await temporaryRuns()
    const evaluation = evaluate({
      environment: defineEnvironment({
        name: 'failing',
        task,
        tasks: () => [{ index: 0 }],
        prompt,
        agent: async ({ turn }) => {
          await turn()
          await turn()
        },
        reward: () => 1,
      }),
      model: { name: 'dear', price: dear, maxTries: 1, backends: [{ url: 'http://scripted.invalid' }] },
      backends: {
        dear: [
          new ScriptedBackend(() => {
            asked += 1
            if (drained) evaluation.drain()
            if (asked % 2 === 0) throw new MillraceError('model_rejected', 'refused')
            return reply()
          }),
        ],
      },
      maxCostUsd: 3,
      preflight: false,
      run: { root: runs.root, name: 'failing' },
    })
    expect(await evaluation.summary()).toMatchObject({
      end,
      rollouts: 1,
      cost: 4,
      outcomes: { model_error: 1 },
      discarded: { attempts: 0 },
    })
    expect(asked).toBe(2)
  })

  test('the cost of a retried attempt is counted separately from the results', async () => {
    const { summary } = await runScripted({
      environment: defineEnvironment({
        name: 'retried',
        task,
        tasks: () => [{ index: 0 }],
        prompt: ({ rollout }) => `attempt ${rollout.attempt}`,
        agent: async ({ turn }) => {
          await turn()
          await turn()
        },
        reward: () => 1,
      }),
      retries: 2,
      script: ({ messages }) => {
        if (messages.length > 1 && !String(messages[0]?.content).endsWith('3')) {
          throw new MillraceError('model_rejected', 'no')
        }
        return reply()
      },
    })
    expect(summary).toMatchObject({ rollouts: 1, scored: 1, usage: { calls: 2 }, discarded: { attempts: 2 } })
    expect(summary.discarded.usage.calls).toBe(2)
  })
})

test('the summary may be requested before the results are read', async () => {
  await using runs = await temporaryRuns()
  const evaluation = evaluate({
    environment: defineEnvironment({ name: 'early', task, tasks, prompt, reward: () => 1 }),
    model: 'sim',
    run: { root: runs.root },
  })
  const summary = evaluation.summary()
  const records = await Array.fromAsync(evaluation)
  expect(records).toHaveLength(2)
  expect((await summary).rollouts).toBe(2)
})

test('a run with a secret option can be resumed, and the mismatch error does not contain the secret', async () => {
  await using runs = await temporaryRuns()
  const environment = defineEnvironment({
    name: 'secretive',
    options: z.object({ apiKey: z.string(), size: z.number().default(1) }),
    task,
    tasks,
    prompt,
    reward: () => 1,
  })
  const sit = (options: Record<string, unknown>) =>
    evaluate({ environment, options, model: 'sim', run: { root: runs.root, name: 'secret' } }).summary()
  await sit({ apiKey: 'sk-very-secret' })
  expect(await sit({ apiKey: 'sk-very-secret' })).toMatchObject({ end: 'complete', rollouts: 2 })
  const mismatch = await sit({ apiKey: 'sk-very-secret', size: 2 }).catch((error: unknown) => error)
  expect(mismatch).toMatchObject({ code: 'run_mismatch' })
  expect(String(mismatch)).not.toContain('sk-very-secret')
})

test('time that failed tries waste does not count against the timeout of the agent', async () => {
  const environment = defineEnvironment({
    name: 'patient',
    task,
    tasks: () => [{ index: 0 }],
    prompt,
    reward: () => 1,
  })
  using clock = new HurriedClock()
  let tries = 0
  const { records } = await runScripted({
    environment,
    retries: 0,
    limits: { timeoutMs: longMs, wallTimeoutMs: 10 * longMs },
    maxTries: 4,
    script: async () => {
      tries += 1
      if (tries === 4) return 'at last'
      await nextTurn()
      // Two of them are more than it has.
      clock.pass(longMs * 0.7)
      throw new MillraceError('model_server_error', 'sorry')
    },
  })
  expect(records).toMatchObject([{ outcome: 'completed' }])
})

test('waiting for a judge does not use the time limit of the reward', async () => {
  using clock = new HurriedClock()
  const count = 10
  const allAsk = Promise.withResolvers<void>()
  let asking = 0
  const environment = defineEnvironment({
    name: 'judged',
    task,
    *tasks() {
      for (let index = 0; index < count; index += 1) yield { index }
    },
    prompt,
    reward: async ({ judge }) => {
      asking += 1
      if (asking === count) allAsk.resolve()
      await judge({ messages: [{ role: 'user', content: 'judge this' }] })
      return 1
    },
  })
  const { records } = await runScripted({
    environment,
    retries: 0,
    concurrency: count,
    judgeConcurrency: 1,
    limits: { tailMs: longMs, wallTimeoutMs: 10 * longMs },
    script: async ({ messages }) => {
      if (messages[0]?.content !== 'judge this') return 'fine'
      await allAsk.promise
      await nextTurn()
      // Those that come last have waited for more than twice what they have.
      clock.pass(longMs / 4)
      return 'fine'
    },
  })
  expect(records.map(({ outcome }) => outcome)).toEqual(Array.from({ length: count }, () => 'completed'))
})
