import {
  defineEnvironment,
  evaluate,
  judge,
  keepToolResults,
  MillraceError,
  replayRollout,
  replayRun,
  z,
  type Environment,
  type Message,
  type ReplayReport,
  type RunReader,
} from 'millrace'
import { calls, temporaryRuns } from 'millrace/testing'
import { describe, expect, test } from 'vitest'
import { activeResources, leftSince } from '../support/kit/active-resources.ts'
import { openRun, storeRun } from '../support/replay/stored-runs.ts'

const said = (messages: readonly Message[], role: Message['role']): number =>
  messages.filter((message) => message.role === role).length

async function verdicts(reader: RunReader, environment?: Environment): Promise<Record<string, number>> {
  const counts: Record<string, number> = {}
  for await (const { verdict } of replayRun(reader, environment ? { environment } : {})) {
    counts[verdict] = (counts[verdict] ?? 0) + 1
  }
  return counts
}

/** Tools of every rule, children of a tool, of an update and of a reward, a judge that is asked the same thing twice. */
const live = { searched: 0, paid: 0 }
const everything = defineEnvironment({
  name: 'everything',
  task: z.object({ number: z.number() }),
  tasks: () => Array.from({ length: 20 }, (_, number) => ({ number })),
  setup: ({ rollout }) => ({ seed: rollout.seed, steps: 0 }),
  prompt: ({ task }) => [
    { role: 'system', content: 'Work.' },
    { role: 'user', content: `Errand ${task.number}.` },
  ],
  tools: {
    step: {
      parameters: z.object({}),
      resume: 'rerun',
      run: (_, { state }) => `step ${(state.steps += 1)} of ${state.seed}`,
    },
    search: {
      parameters: z.object({}),
      resume: 'reuse',
      run: () => `found ${(live.searched += 1)} at ${Math.random()}`,
    },
    pay: {
      parameters: z.object({}),
      run: async (_, { child }) =>
        `paid ${(live.paid += 1)}: ${(await child({ prompt: 'Is it paid?', tools: [] })).answer}`,
    },
    ask: {
      parameters: z.object({ what: z.string() }),
      resume: 'rerun',
      run: async ({ what }, { child }) => (await child({ prompt: what, tools: ['step'] })).answer,
    },
  },
  update: async ({ reply, child, note }) => {
    if (reply.content !== 'done') return undefined
    note('checked', (await child({ prompt: 'Check it.', tools: [] })).answer)
    return undefined
  },
  reward: {
    steps: ({ state, metric }) => {
      metric('stepsMade', state.steps)
      return state.steps
    },
    liked: { weight: 0.5, score: judge({ rubric: 'Any.' }) },
    likedAgain: { weight: 0.5, score: judge({ rubric: 'Any.' }) },
    reviewed: async ({ child }) => (await child({ prompt: 'Review it.', tools: [] })).answer === 'fine',
  },
})

let verdict = 0
const everythingSaid = ({ messages }: { messages: readonly Message[] }) => {
  const [first] = messages
  const asked = String(messages.findLast(({ role }) => role === 'user')?.content)
  if (String(first?.content).startsWith('You are a strict judge')) return `Score: ${((verdict += 1) % 10) / 10}`
  if (asked.startsWith('Errand')) {
    const turns = [
      calls({ step: {}, search: {} }),
      calls({ pay: {}, step: {} }),
      calls({ ask: { what: `Help with ${asked}` } }),
    ]
    return turns[said(messages, 'assistant')] ?? 'done'
  }
  if (asked.startsWith('Help')) return said(messages, 'tool') > 0 ? 'helped' : calls({ step: {} })
  return asked === 'Review it.' ? 'fine' : 'yes'
}

/** What a model sees is not what is recorded: calls in its text that need repair, outputs too long to show, a shortened past. */
const shortened = defineEnvironment({
  name: 'shortened',
  task: z.object({ number: z.number() }),
  tasks: () => Array.from({ length: 20 }, (_, number) => ({ number })),
  prompt: ({ task }) => `Errand ${task.number}.`,
  contextPolicy: keepToolResults(1, { every: 1 }),
  toolOutput: { maxChars: 1_000, spill: true },
  toolFormat: 'hermes',
  repair: { coerce: true, toolAlias: [{ from: ['fetch'], to: 'read' }] },
  tools: {
    read: {
      parameters: z.object({ page: z.number() }),
      resume: 'reuse',
      run: ({ page }) => `page ${page} at ${Math.random()} `.repeat(200),
    },
    again: {
      parameters: z.object({ page: z.number() }),
      resume: 'rerun',
      run: ({ page }, { task }) => `page ${page} of ${task.number} `.repeat(200),
    },
  },
  reward: ({ toolRepairs }) => toolRepairs,
})

const shortenedSaid = ({ messages }: { messages: readonly Message[] }) => {
  const turn = said(messages, 'assistant')
  const written = (name: string, args: object) => `<tool_call>${JSON.stringify({ name, arguments: args })}</tool_call>`
  const [output] = /o-[0-9a-f]{12}/.exec(JSON.stringify(messages)) ?? []
  const turns = [
    written('fetch', { page: '1' }) + written('again', { page: '2' }),
    written('read_tool_output', { output, offset: 900, length: 50 }),
    written('read', { page: '3' }),
    written('again', { page: '4' }),
  ]
  return turns[turn] ?? 'done'
}

describe('a replay', () => {
  test('of 200 rollouts in seven environments is identical in every event, and makes no request', async () => {
    await using runs = await temporaryRuns()
    const simulated = [
      { environment: 'arithmetic', attempts: 3, limit: 20 },
      { environment: 'guess-number', attempts: 1, limit: 20 },
      { environment: 'judged-answers', attempts: 2, limit: 18 },
      { environment: 'delegate', attempts: 1, limit: 20 },
      { environment: 'diverse-primes', attempts: 4, limit: 6 },
    ]
    let replayed = 0
    for (const { environment, attempts, limit } of simulated) {
      const model = { name: 'sim', simulator: { skill: 0.7 } }
      await evaluate({ environment, model, attempts, limit, run: { root: runs.root, name: environment } }).summary()
      using reader = openRun(runs.root, environment)
      expect(await verdicts(reader), environment).toEqual({ identical: attempts * limit })
      replayed += attempts * limit
    }
    const { backend, summary } = await storeRun(runs.root, { environment: everything, script: everythingSaid })
    expect(summary.outcomes.completed).toBe(20)
    const before = { ...live, asked: backend.requests.length }
    using reader = openRun(runs.root)
    expect(await verdicts(reader, everything)).toEqual({ identical: 20 })
    expect({ ...live, asked: backend.requests.length }).toEqual(before)
    await storeRun(runs.root, { environment: shortened, script: shortenedSaid, name: 'shortened' })
    using other = openRun(runs.root, 'shortened')
    expect(other.rollout('3-0')).toMatchObject({ outcome: 'completed', turns: 5, toolRepairs: 5, toolErrors: 0 })
    expect(other.eventsOf('3-0', 1, 'context').length).toBeGreaterThan(1)
    expect(await verdicts(other, shortened)).toEqual({ identical: 20 })
    expect(replayed + 40).toBe(200)
    const report = await replayRollout(reader, '3-0', { environment: everything })
    // 11 of its own, 4 of the child that was asked, 2 each of those of the update and the reward; the one that pay asked
    // did not run.
    expect(report).toMatchObject({ verdict: 'identical', messages: 19, children: { replayed: 3, kept: 1 } })
    // A child that is not asked any more is missed, though another one was rightly not asked.
    const silent = { ...everything, update: () => {} }
    const without = await replayRollout(reader, '3-0', { environment: silent })
    expect(without).toMatchObject({ verdict: 'different', children: { replayed: 2, kept: 1 } })
    expect(without.differences[0]).toMatchObject({ what: 'child', recorded: 'a child of 2 messages', replayed: null })
  })

  test('of rollouts ended by external causes has the same outcomes', async () => {
    await using runs = await temporaryRuns()
    const ends = [
      'model_error',
      'context_length',
      'tool_infra_error',
      'max_turns',
      'max_tokens',
      'reward_error',
      'agent_error',
    ]
    const environment = defineEnvironment({
      name: 'ends',
      task: z.object({ end: z.string() }),
      tasks: () => ends.map((end) => ({ end })),
      prompt: ({ task }) => task.end,
      tools: {
        look: {
          parameters: z.object({}),
          run: (_, { task }) => {
            if (task.end === 'tool_infra_error') throw new MillraceError('tool_infra', 'its server is gone')
            return 'seen'
          },
        },
      },
      limits: { maxTurns: 4, maxTokens: 1_000 },
      update: ({ task, messages }) => {
        if (task.end === 'agent_error' && said(messages, 'tool') > 0) throw new Error('a mistake')
      },
      reward: ({ task }) => {
        if (task.end === 'reward_error') throw new Error('no reward')
        return 1
      },
    })
    const { summary } = await storeRun(runs.root, {
      environment,
      script: ({ messages }) => {
        const end = String(messages[0]?.content)
        if (said(messages, 'tool') === 0 || end === 'max_turns') return calls({ look: {} })
        if (end === 'model_error') throw new MillraceError('model_server_error', 'it broke')
        if (end === 'context_length') throw new MillraceError('context_length', 'too long')
        const message = { role: 'assistant' as const, content: 'done' }
        const usage = { calls: 1, input: 1, cachedInput: 0, output: 2_000, reasoning: 0 }
        return end === 'max_tokens' ? { message, finishReason: 'length' as const, usage } : 'done'
      },
    })
    for (const end of ends) expect(summary.outcomes, end).toMatchObject({ [end]: 1 })
    using reader = openRun(runs.root)
    expect(await verdicts(reader, environment)).toEqual({ identical: ends.length })
  })

  test('reports why a rollout cannot be replayed', async () => {
    await using runs = await temporaryRuns()
    const environment = defineEnvironment({
      name: 'rows',
      task: z.object({ number: z.number() }),
      tasks: () => [{ number: 1 }, { number: 'two' }],
      prompt: () => 'go',
      reward: () => 1,
    })
    await storeRun(runs.root, { environment, script: () => 'done' })
    using reader = openRun(runs.root)
    const reports = await Array.fromAsync(replayRun(reader, { environment }))
    expect(reports.map(({ verdict: found, why }) => [found, why])).toEqual([
      ['identical', undefined],
      ['skipped', expect.stringContaining('number')],
    ])
  })
})

describe('a replay finds a change', () => {
  const base = {
    name: 'changing',
    task: z.object({ number: z.number() }),
    tasks: () => [{ number: 7 }],
    setup: () => ({ seen: 0 }),
    prompt: () => 'What is the number?\nLook it up.',
    tools: {
      look: {
        parameters: z.object({}),
        resume: 'rerun' as const,
        run: (_: unknown, { state, task }: { state: { seen: number }; task: { number: number } }) => {
          state.seen += 1
          return `it is ${task.number}`
        },
      },
    },
    reward: { right: ({ answer }: { answer: string }) => answer === '7' },
  }

  async function replayed(changed: object, original: object = {}): Promise<ReplayReport> {
    await using runs = await temporaryRuns()
    const environment = defineEnvironment({ ...base, ...original })
    await storeRun(runs.root, {
      environment,
      script: ({ messages }) => (said(messages, 'tool') > 0 ? '7' : calls({ look: {} })),
    })
    using reader = openRun(runs.root)
    expect((await replayRollout(reader, '0-0', { environment })).verdict).toBe('identical')
    return await replayRollout(reader, '0-0', { environment: defineEnvironment({ ...base, ...original, ...changed }) })
  }

  test('in the prompt, and uses the recording for the rest', async () => {
    const report = await replayed({ prompt: () => 'What is the number?\nGuess.' })
    expect(report).toMatchObject({
      verdict: 'different',
      differences: [{ session: '0-0', what: 'message 0 (user)' }],
      first: { session: '0-0', seq: 0, replayed: { content: 'What is the number?\nGuess.' } },
    })
  })

  test('in a tool that is run again', async () => {
    const look = { ...base.tools.look, run: () => 'it is 8' }
    const report = await replayed({ tools: { look } })
    expect(report.first).toMatchObject({ seq: 2, recorded: { content: 'it is 7' }, replayed: { content: 'it is 8' } })
  })

  test('in the reward', async () => {
    const report = await replayed({ reward: { right: () => 0.25 } })
    expect(report.differences).toEqual([
      { session: '0-0', what: 'reward', recorded: '1', replayed: '0.25' },
      {
        session: '0-0',
        what: 'rewards',
        recorded: '{"right":{"score":1,"weight":1}}',
        replayed: '{"right":{"score":0.25,"weight":1}}',
      },
    ])
    expect(report.first).toBeUndefined()
  })

  test('in the agent: a request beyond the recording is not sent', async () => {
    const report = await replayed({ update: () => ({ messages: [{ role: 'user', content: 'Go on.' }] }) })
    expect(report).toMatchObject({ verdict: 'different', why: expect.stringContaining('not in its recording') })
    expect(report.first).toMatchObject({ seq: 3, recorded: { role: 'assistant' }, replayed: { content: 'Go on.' } })
  })

  test('in the agent: a missing request is reported', async () => {
    const report = await replayed({ update: () => ({ end: true }) })
    expect(report.differences).toContainEqual({ session: '0-0', what: 'turns', recorded: '2', replayed: '1' })
    expect(report.first).toMatchObject({ seq: 3, replayed: null })
  })

  test('in a state that a tool changes without a resume mode', async () => {
    const { resume: _resume, ...silent } = base.tools.look
    const reward = ({ state }: { state: { seen: number } }): number => state.seen
    await using runs = await temporaryRuns()
    const environment = defineEnvironment({ ...base, tools: { look: silent }, reward })
    await storeRun(runs.root, {
      environment,
      script: ({ messages }) => (said(messages, 'tool') > 0 ? '7' : calls({ look: {} })),
    })
    using reader = openRun(runs.root)
    const report = await replayRollout(reader, '0-0', { environment })
    expect(report).toMatchObject({ verdict: 'different', hints: [expect.stringContaining("resume: 'rerun'")] })
    expect(report.differences[0]).toMatchObject({ what: 'reward', recorded: '1', replayed: '0' })
  })

  test('in a request to a judge', async () => {
    const judged = (rubric: string) => ({ reward: judge({ rubric }) })
    await using runs = await temporaryRuns()
    const environment = defineEnvironment({ ...base, ...judged('Be kind.') })
    await storeRun(runs.root, { environment, script: () => 'Score: 0.5' })
    using reader = openRun(runs.root)
    expect((await replayRollout(reader, '0-0', { environment })).verdict).toBe('identical')
    const stricter = defineEnvironment({ ...base, ...judged('Be strict.') })
    expect(await replayRollout(reader, '0-0', { environment: stricter })).toMatchObject({
      verdict: 'different',
      why: expect.stringContaining('verdict'),
    })
  })

  test('in the task', async () => {
    await expect(replayed({ tasks: () => [{ number: 8 }] })).rejects.toThrow('task 0 (0) has changed')
  })
})

test('a replay leaves no resources behind, also if its reader stops', async () => {
  await using runs = await temporaryRuns()
  await storeRun(runs.root, { environment: everything, limit: 3, script: everythingSaid })
  const before = activeResources()
  {
    using reader = openRun(runs.root)
    for await (const _report of replayRun(reader, { environment: everything })) break
    await replayRollout(reader, '1-0', { environment: everything })
  }
  expect(await leftSince(before)).toEqual([])
})

test('an error for an unknown rollout suggests an existing one', async () => {
  await using runs = await temporaryRuns()
  const environment = defineEnvironment({
    name: 'few',
    task: z.object({}),
    tasks: () => Array.from({ length: 12 }, () => ({})),
    prompt: () => 'go',
    reward: () => 1,
  })
  await storeRun(runs.root, { environment, script: () => 'done' })
  using reader = openRun(runs.root)
  await expect(replayRollout(reader, '111-0', { environment })).rejects.toThrow('did you mean 11-0?')
  await expect(replayRollout(reader, '0-0')).rejects.toThrow('given as an object')
})

test.each(['keep', 'void', 'replace'] as const)(
  'a group whose reward failed is replayed as a whole (%s)',
  async (groupPolicy) => {
    await using runs = await temporaryRuns()
    const environment = defineEnvironment({
      name: 'unscored',
      task: z.object({}),
      tasks: () => [{}],
      prompt: () => 'Go.',
      reward: {
        own: () => 1,
        seen: { weight: 0, score: () => 1 },
        together: {
          group: ({ members }) => {
            if (members.length === 2) throw new Error('they are too alike')
            return members.map(() => 1)
          },
        },
      },
      groupPolicy,
    })
    const { summary } = await storeRun(runs.root, { environment, attempts: 2, script: () => 'done' })
    expect(summary.outcomes).toMatchObject({ reward_error: 2 })
    using reader = openRun(runs.root)
    const reports = await Array.fromAsync(replayRun(reader, { environment }))
    expect(reports).toMatchObject([{ verdict: 'identical' }, { verdict: 'identical' }])
  },
)

test('a rollout that timed out in update ends there again in a replay', async () => {
  await using runs = await temporaryRuns()
  const environment = defineEnvironment({
    name: 'stuck',
    task: z.object({}),
    tasks: () => [{}],
    prompt: () => 'Go.',
    update: () => new Promise<undefined>(() => {}),
    reward: () => 1,
    limits: { timeoutMs: 300 },
  })
  await storeRun(runs.root, { environment, script: () => 'done' })
  using reader = openRun(runs.root)
  expect(reader.rollout('0-0')).toMatchObject({ outcome: 'agent_timeout', reward: 1 })
  const reports = await Array.fromAsync(replayRun(reader, { environment }))
  expect(reports).toMatchObject([{ verdict: 'identical' }])
})
