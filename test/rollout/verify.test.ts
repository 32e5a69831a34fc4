import {
  defineEnvironment,
  evaluate,
  forkRollout,
  judge,
  refine,
  replayRun,
  rescoreRun,
  textOf,
  z,
  type Agent,
  type Environment,
} from 'millrace'
import { calls, runScripted, ScriptedBackend, temporaryRuns, type Script } from 'millrace/testing'
import { expect, test } from 'vitest'
import { openRun, scripted, storeRun } from '../support/replay/stored-runs.ts'

/** Answers, hears what the reward says, and answers again until it says nothing more. */
const triesAgain: Agent = async ({ turn, verify, append }) => {
  for (;;) {
    await turn()
    const { feedback } = await verify()
    if (feedback === undefined) return
    append({ role: 'user', content: feedback })
  }
}

const base = {
  name: 'guess',
  task: z.object({ number: z.number() }),
  tasks: () => [{ number: 3 }],
  prompt: () => 'Guess.',
}

/** Guesses 1, 2, 3, … */
const counts: Script = ({ messages }) => String(messages.filter(({ role }) => role === 'assistant').length + 1)

const said = (record: { messages: readonly Parameters<typeof textOf>[0][] } | undefined): string[] =>
  record?.messages.map(textOf) ?? []

test('an agent hears the reward of its conversation so far, and goes on with it', async () => {
  const heard: unknown[] = []
  const environment = defineEnvironment({
    ...base,
    agent: async (context) => {
      expect(context.task).toEqual({ number: 3 })
      await triesAgain({ ...context, verify: async () => (heard.push(await context.verify()), heard.at(-1) as never) })
    },
    reward: {
      right: ({ task, answer, outcome }) => outcome === 'completed' && Number(answer) === task.number,
      close: { weight: 0.5, score: ({ task, answer }) => 1 / (1 + Math.abs(task.number - Number(answer))) },
      length: { weight: 0, score: ({ messages }) => messages.length },
    },
  })
  const { records } = await runScripted({ environment, script: counts })
  expect(heard).toEqual([
    {
      reward: expect.closeTo(1 / 6),
      rewards: { right: 0, close: 1 / 3, length: 2 },
      feedback: expect.stringContaining('0.16'),
    },
    { reward: 0.25, rewards: { right: 0, close: 0.5, length: 4 }, feedback: expect.stringContaining('0.25') },
    { reward: 1.5, rewards: { right: 1, close: 1, length: 6 } },
  ])
  expect(records[0]).toMatchObject({ outcome: 'completed', reward: 1.5, answer: '3', turns: 3, metrics: { length: 6 } })
})

test('the environment says what the policy is told', async () => {
  const environment = defineEnvironment({
    ...base,
    agent: triesAgain,
    reward: ({ task, answer }) => Number(answer) === task.number,
    feedback: ({ task, answer, reward, rewards }) => {
      expect(rewards).toEqual({ reward })
      return reward === 1 ? undefined : `${answer} is less than ${task.number}.`
    },
  })
  const { records } = await runScripted({ environment, script: counts })
  expect(said(records[0])).toEqual(['Guess.', '1', '1 is less than 3.', '2', '2 is less than 3.', '3'])
})

test('what is verified takes none of the budget: neither time nor calls', async () => {
  const environment = defineEnvironment({
    ...base,
    agent: triesAgain,
    limits: { maxTurns: 3 },
    reward: async ({ answer, child }) => {
      await new Promise((resolve) => setTimeout(resolve, 200))
      return (await child({ prompt: `Is it ${answer}?` })).answer === 'yes'
    },
  })
  const script: Script = (request) => {
    const asked = textOf(request.messages[0] ?? { role: 'user', content: '' })
    return asked === 'Guess.' ? counts(request) : asked === 'Is it 3?' ? 'yes' : 'no'
  }
  const { records } = await runScripted({ environment, script })
  expect(records[0]).toMatchObject({ outcome: 'completed', reward: 1, turns: 3, children: 4 })
  // The calls of a reward's children are counted with the rollout, as always.
  expect(records[0]?.usage.calls).toBe(7)
  expect(records[0]?.timing.waitMs).toBeGreaterThan(500)
})

const fails = (): Promise<never> => Promise.reject(new Error('broken'))
const broken: readonly [string, Pick<Environment, 'reward' | 'feedback'>, string][] = [
  ['a reward', { reward: fails }, 'reward "reward" threw Error'],
  ['feedback', { reward: () => 0, feedback: fails }, 'feedback threw Error'],
]

test.each(broken)(
  '%s that fails ends the rollout, whatever the agent does about it',
  async (_what, failing, message) => {
    let late: unknown
    const environment = defineEnvironment({
      ...base,
      agent: async ({ turn, verify, child }) => {
        await turn()
        const agent: Agent = async (context) => {
          await context.turn()
          await context.verify().catch(() => {})
          await new Promise((resolve) => setTimeout(resolve, 10))
        }
        await child({ prompt: 'Guess, too.', agent }).catch(() => {})
        late = await verify().catch((error: unknown) => error)
      },
      ...failing,
    })
    const { records } = await runScripted({ environment, script: () => '1', retries: 0 })
    expect(records[0]).toMatchObject({
      outcome: 'reward_error',
      reward: null,
      answer: '1',
      error: { code: 'reward_failed' },
    })
    expect(records[0]?.error?.message).toContain(message)
    expect(late).toMatchObject({ code: 'cancelled' })
  },
)

test('an agent that has ended leaves no verification behind', async () => {
  const aborted = Promise.withResolvers<void>()
  const environment = defineEnvironment({
    ...base,
    agent: async ({ turn, verify }) => {
      await turn()
      void verify()
      await new Promise((resolve) => setImmediate(resolve))
    },
    reward: ({ signal, truncated }): boolean | Promise<never> => {
      if (aborts === 0) signal.addEventListener('abort', () => aborted.resolve())
      aborts += 1
      return aborts === 1 ? new Promise<never>(() => {}) : !truncated
    },
  })
  let aborts = 0
  const { records } = await runScripted({ environment, script: counts })
  expect(records[0]).toMatchObject({ outcome: 'completed', reward: 1 })
  await aborted.promise
})

test('rewards of groups alone cannot verify', async () => {
  const environment = defineEnvironment({
    ...base,
    agent: triesAgain,
    reward: { best: { group: ({ members }) => members.map(() => 1) } },
  })
  const { records } = await runScripted({ environment, script: counts, retries: 0 })
  expect(records[0]).toMatchObject({ outcome: 'agent_error', error: { code: 'agent_failed' } })
  expect(records[0]?.error?.message).toContain('rewards of groups only')
})

/** Its reward asks a judge and a child, notes what it finds, and counts how often it is asked. */
function judged(asked: { rewards: number }): Environment {
  return defineEnvironment({
    ...base,
    agent: triesAgain,
    reward: {
      right: async (context) => {
        asked.rewards += 1
        context.note('guess', context.answer)
        context.metric('asked', context.messages.length)
        const second = await context.child({ prompt: `Second opinion on ${context.answer}` })
        const first = await judge({ model: 'judge', rubric: ({ answer }) => `Is ${answer} right?` })(context)
        return Number(first) * Number(second.answer)
      },
    },
  })
}

const models = { judge: { backends: [{ url: 'http://judge.invalid' }], price: { input: 1, output: 1 } } }
const judgeBackend = () =>
  new ScriptedBackend(({ messages }) =>
    textOf(messages.at(-1) ?? { role: 'user', content: '' }).includes('Is 3 right?') ? 'Score: 1' : 'Score: 0',
  )
const guesses: Script = (request) => {
  const [first] = request.messages
  const asked = first ? textOf(first) : ''
  return asked === 'Guess.' ? counts(request) : asked.endsWith('3') ? '1' : '0'
}

test('a rollout that is cut off and resumed hears what it was told, and asks no judge and no child again', async () => {
  await using runs = await temporaryRuns()
  const asked = { rewards: 0 }
  const stop = new AbortController()
  const launch = async (script: Script, signal?: AbortSignal) => {
    const judges = judgeBackend()
    const backend = new ScriptedBackend(script)
    const evaluation = evaluate({
      environment: judged(asked),
      model: scripted,
      models,
      backends: { scripted: [backend], judge: [judges] },
      preflight: false,
      run: { root: runs.root, name: 'guess' },
      ...(signal && { signal }),
    })
    return { records: await Array.fromAsync(evaluation), judges, backend }
  }
  const cut = await launch((request) => {
    if (request.messages.length < 5) return guesses(request)
    stop.abort()
    return new Promise((_, reject) => request.signal.addEventListener('abort', () => reject(request.signal.reason)))
  }, stop.signal)
  expect(cut.records).toEqual([])
  expect(asked.rewards).toBe(2)
  const { records, judges, backend } = await launch(guesses)
  // The third verification and the reward at the end.
  expect(asked.rewards).toBe(4)
  expect(judges.requests).toHaveLength(2)
  expect(backend.requests).toHaveLength(3)
  expect(records[0]).toMatchObject({
    attempt: 1,
    reward: 1,
    children: 4,
    usage: { calls: 7 },
    judgeUsage: { calls: 4 },
  })
  using reader = openRun(runs.root, 'guess')
  expect(reader.eventsOf('0-0', 1, 'verification').map(({ data }) => data)).toMatchObject([
    { at: 1, reward: 0, reports: { metrics: { asked: 2 }, notes: { guess: '1' } } },
    { at: 3, reward: 0 },
    { at: 5, reward: 1, rewards: { right: 1 } },
  ])
})

test('a replay and a fork hear the same verifications', async () => {
  await using runs = await temporaryRuns()
  const asked = { rewards: 0 }
  const environment = judged(asked)
  const judges = judgeBackend()
  await evaluate({
    environment,
    model: scripted,
    models,
    backends: { scripted: [new ScriptedBackend(guesses)], judge: [judges] },
    preflight: false,
    run: { root: runs.root, name: 'stored' },
  }).summary()
  expect(asked.rewards).toBe(4)
  using reader = openRun(runs.root)
  for await (const report of replayRun(reader, { environment })) {
    expect(report, JSON.stringify(report)).toMatchObject({ verdict: 'identical' })
  }
  // Only the reward at the end was computed again.
  expect(asked.rewards).toBe(5)

  const backend = new ScriptedBackend(guesses)
  const evaluation = await forkRollout(reader, {
    rollout: '0-0',
    turn: 2,
    environment,
    preflight: false,
    backends: { scripted: [backend], judge: [judges] },
    run: { root: runs.root, name: 'fork' },
  })
  const [forked] = await Array.fromAsync(evaluation)
  expect(forked).toMatchObject({ reward: 1, answer: '3', children: 4, judgeUsage: { calls: 4 } })
  // The third turn and two children: the first two verifications were heard again.
  expect(backend.requests).toHaveLength(3)
  expect(asked.rewards).toBe(7)
  using forks = openRun(runs.root, 'fork')
  expect(forks.eventsOf('0-0', 1, 'verification')).toHaveLength(3)
  for await (const report of replayRun(forks, { environment })) {
    expect(report, JSON.stringify(report)).toMatchObject({ verdict: 'identical' })
  }
})

test('a replay repeats a verification that failed', async () => {
  await using runs = await temporaryRuns()
  const environment = defineEnvironment({
    ...base,
    agent: triesAgain,
    reward: ({ answer }) => {
      if (answer === '2') throw new Error('broken')
      return 0
    },
  })
  await storeRun(runs.root, { environment, script: counts })
  using reader = openRun(runs.root)
  for await (const report of replayRun(reader, { environment })) {
    expect(report, JSON.stringify(report)).toMatchObject({ verdict: 'identical' })
  }
})

test('a rollout whose verification failed is not scored again, and --retry-failed goes on with it', async () => {
  await using runs = await temporaryRuns()
  let isBroken = true
  const environment = defineEnvironment({
    ...base,
    agent: refine({ turns: 3 }),
    reward: ({ answer }) => {
      if (isBroken) throw new Error('broken')
      return Number(answer) / 3
    },
  })
  await storeRun(runs.root, { environment, script: counts })
  isBroken = false
  {
    using reader = openRun(runs.root)
    expect(reader.rollout('0-0')).toMatchObject({ outcome: 'reward_error', agentOutcome: 'reward_error', answer: '1' })
    const rescoring = await rescoreRun(reader, { environment })
    const error = { message: expect.stringContaining('its agent was stopped in the middle') }
    expect(await Array.fromAsync(rescoring)).toMatchObject([{ outcome: 'reward_error', after: null, error }])
    expect(rescoring.summary()).toMatchObject({ after: { scored: 0 }, failures: [{ count: 1 }] })
  }
  const backend = new ScriptedBackend(counts)
  await evaluate({
    environment,
    model: scripted,
    backends: { scripted: [backend] },
    preflight: false,
    run: { root: runs.root, name: 'stored', retryFailed: true },
  }).summary()
  expect(backend.requests).toHaveLength(2)
  using reader = openRun(runs.root)
  const record = reader.rollout('0-0')
  expect(record).toMatchObject({ attempt: 1, outcome: 'completed', reward: 1, answer: '3', turns: 3 })
  expect(record).not.toHaveProperty('agentOutcome')
})

test('an agent calls tools of its own beside those of the rollout, or fewer', async () => {
  const log: string[] = []
  const own = {
    remember: {
      parameters: z.object({ what: z.string() }),
      run: ({ what }: { what: string }, { task }: { task: unknown }) => {
        log.push(`${what} of ${JSON.stringify(task)}`)
        return 'remembered'
      },
    },
  }
  const environment = defineEnvironment({
    ...base,
    tools: {
      look: { parameters: z.object({}), run: () => 'looked' },
      erase: { parameters: z.object({}), run: () => 'erased' },
    },
    agent: async ({ turn, tools, append }) => {
      const more = tools.only(['look']).with(own)
      const { calls: asked } = await turn({ tools: more.definitions })
      append(...(await more.call(asked)))
      await turn({ tools: more.definitions })
      expect(tools.only(['look']).with(own).definitions).toBe(more.definitions)
      expect(() => tools.with({ look: own.remember })).toThrow('there is a tool "look" already')
    },
    reward: () => 1,
  })
  const script: Script = ({ messages, tools }) => {
    expect(tools.map((tool) => tool.function.name)).toEqual(['look', 'remember'])
    return messages.length > 1 ? 'done' : calls({ look: {}, remember: { what: 'all' }, erase: {} })
  }
  const { records } = await runScripted({ environment, script, retries: 0 })
  expect(records[0]?.error).toBeUndefined()
  expect(said(records[0])).toEqual([
    'Guess.',
    '',
    'looked',
    'remembered',
    expect.stringContaining('no tool named "erase"'),
    'done',
  ])
  expect(log).toEqual(['all of {"number":3}'])
  expect(records[0]).toMatchObject({ toolCalls: 3, toolErrors: 1 })
})
