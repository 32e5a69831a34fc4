import {
  defineEnvironment,
  evaluate,
  exportRollouts,
  RunReader,
  z,
  type Message,
  type MessageNode,
  type RolloutRecord,
} from 'millrace'
import { calls, runScripted, type Script, ScriptedBackend, temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { activeResources, leftSince } from '../support/kit/active-resources.ts'

const firstText = (messages: readonly Message[]): string => String(messages[0]?.content)
const isAnswered = (messages: readonly Message[]): boolean => messages.at(-1)?.role === 'tool'

const environment = defineEnvironment({
  name: 'family',
  task: z.object({ parts: z.array(z.string()) }),
  tasks: () => [{ parts: ['a', 'b', 'c'] }],
  setup: () => ({ noted: [] as string[] }),
  prompt: () => 'Ask your children.',
  tools: {
    delegate: {
      parameters: z.object({ part: z.string() }),
      run: async ({ part }, { child }) => (await child({ prompt: `Note ${part}.`, tools: ['note'] })).answer,
    },
    note: {
      parameters: z.object({ text: z.string() }),
      run: ({ text }, { state }) => {
        state.noted.push(text)
        return 'noted'
      },
    },
  },
  update: async ({ reply, child, note }) => {
    if (reply.content !== 'all asked') return undefined
    const checked = await child({ prompt: 'Check it.' })
    note('checked', checked.answer)
    return undefined
  },
  reward: {
    noted: ({ state }) => state.noted.length,
    reviewed: async ({ child }) => {
      const reviews = await Promise.all(['First', 'Second'].map((which) => child({ prompt: `${which} review.` })))
      return reviews.filter(({ answer, outcome }) => outcome === 'completed' && answer === 'good').length
    },
  },
})

/** By content alone; after a random number of turns of the loop, so that nothing can lean on an order. */
const script = async ({ messages }: { messages: readonly Message[] }) => {
  for (let turns = Math.random() * 5; turns > 0; turns -= 1) await new Promise((resolve) => setImmediate(resolve))
  const asked = firstText(messages)
  if (asked === 'Ask your children.') {
    if (isAnswered(messages)) return 'all asked'
    return {
      role: 'assistant' as const,
      content: null,
      tool_calls: ['a', 'b', 'c'].map((part, index) => ({
        id: `call_${index}`,
        type: 'function' as const,
        function: { name: 'delegate', arguments: JSON.stringify({ part }) },
      })),
    }
  }
  if (asked.startsWith('Note ')) return isAnswered(messages) ? `did ${asked}` : calls({ note: { text: asked } })
  if (asked === 'Check it.') return 'in order'
  return 'good'
}

test('children of a tool, an update and a reward share tools, state and budget, in any order', async () => {
  for (let round = 0; round < 10; round += 1) {
    const { records, summary, backend } = await runScripted({ environment, script })
    const [record] = records
    expect(record).toMatchObject({ outcome: 'completed', reward: 5, children: 6, info: { checked: 'in order' } })
    expect(record?.messages.filter(({ role }) => role === 'tool').map(({ content }) => content)).toEqual([
      'did Note a.',
      'did Note b.',
      'did Note c.',
    ])
    // 2 of its own, 2 for each of three children, 1 to check, 2 to review: all on the parent's account.
    expect(summary.usage.calls).toBe(11)
    expect(backend.requests).toHaveLength(11)
    // A child was given one tool and sees no other.
    const child = backend.requests.find(({ messages }) => firstText(messages) === 'Note a.')
    expect(child?.tools.map((tool) => tool.function.name)).toEqual(['note'])
  }
})

test('the usage of children counts against the limits of their parent', async () => {
  const { records } = await runScripted({ environment, script, limits: { maxTurns: 4 } })
  expect(records[0]).toMatchObject({ outcome: 'max_turns', truncated: true })
})

test('a child that requests an unknown tool fails its tool call and leaves nothing running', async () => {
  const asking = defineEnvironment({
    name: 'asking',
    task: z.object({}),
    tasks: () => [{}],
    prompt: () => 'go',
    tools: {
      delegate: {
        parameters: z.object({}),
        run: async (_, { child }) => (await child({ prompt: 'x', tools: ['nope'] })).answer,
      },
    },
    reward: () => 1,
  })
  const before = activeResources()
  const { records } = await runScripted({
    environment: asking,
    script: ({ messages }) => (isAnswered(messages) ? 'done' : calls({ delegate: {} })),
  })
  expect(records[0]).toMatchObject({ outcome: 'completed', toolErrors: 1 })
  expect(await leftSince(before)).toEqual([])
})

test.each([
  [{ limits: { maxTurn: 2 } }, 'limits: `maxTurn` is not known; did you mean `maxTurns`?'],
  [{ sampling: { max_tokens: 2 } }, 'sampling: `max_tokens` is not known; did you mean `maxTokens`?'],
  [{ limits: { maxTurns: Number.NaN } }, 'limits.maxTurns: expected a number'],
  [{ tool: ['look'] }, '`tool` is not known; did you mean `tools`?'],
])('an invalid child request is refused: %j', async (misspelt: object, problem) => {
  const misspelling = defineEnvironment({
    name: 'misspelling',
    task: z.object({}),
    tasks: () => [{}],
    prompt: () => 'go',
    // As from JavaScript: the types refuse these.
    reward: async ({ child }) => (await child({ prompt: 'x', ...misspelt })).turns,
  })
  const { records } = await runScripted({ environment: misspelling, retries: 0, script: () => 'done' })
  expect(records[0]).toMatchObject({ outcome: 'reward_error', error: { message: expect.stringContaining(problem) } })
})

test('a child limit that is undefined sets no limit and keeps that of the parent', async () => {
  // As JavaScript has it, and TypeScript where it is not told otherwise.
  const limits = { maxTurns: undefined } as object
  const { records, backend } = await runScripted({
    environment: defineEnvironment({
      name: 'unlimited',
      task: z.object({}),
      tasks: () => [{}],
      prompt: () => 'go',
      tools: { look: { parameters: z.object({}), run: () => 'nothing' } },
      limits: { maxTurns: 5 },
      update: async ({ child }) => void (await child({ prompt: 'help', limits })),
      reward: () => 1,
    }),
    script: ({ messages }) => {
      // So that it comes to an end in any case.
      if (messages.length > 40) return 'enough'
      return calls({ look: {} })
    },
  })
  expect(records).toMatchObject([{ outcome: 'max_turns', children: 1 }])
  expect(backend.requests).toHaveLength(5)
})

test('update does not run for a child of update, so a model can play the user', async () => {
  const asked: string[] = []
  const { records } = await runScripted({
    limits: { maxTurns: 20 },
    environment: defineEnvironment({
      name: 'played-user',
      task: z.object({}),
      tasks: () => [{}],
      prompt: () => 'I want my money back.',
      update: async ({ rollout, messages, child }) => {
        asked.push(`${rollout.id}: ${messages.length}`)
        if (messages.length > 4) return { end: true }
        const user = await child({ prompt: 'Play the user.', tools: [] })
        return { messages: [{ role: 'user', content: user.answer }] }
      },
      reward: ({ messages }) => messages.length,
    }),
    script: ({ messages }) => (messages[0]?.content === 'Play the user.' ? 'Now.' : 'How can I help?'),
  })
  expect(records).toMatchObject([{ outcome: 'completed', turns: 3, children: 2, reward: 6 }])
  expect(asked).toEqual(['0-0: 2', '0-0: 4', '0-0: 6'])
})

/** Its agent delegates to three children, of which the second names an agent and the third has a tool that starts a fourth. */
const leading = defineEnvironment({
  name: 'leading',
  task: z.object({}),
  tasks: () => [{}],
  prompt: () => 'Lead.',
  tools: {
    look: { parameters: z.object({}), run: () => 'seen' },
    ask: { parameters: z.object({}), run: async (_, { child }) => (await child({ prompt: 'Advise.' })).answer },
  },
  agent: async ({ turn, append, child }) => {
    await turn()
    const standard = await child({ prompt: 'Look.', tools: ['look'] })
    const named = await child({
      prompt: 'Answer twice.',
      agent: async (own) => void (await own.turn(), await own.turn()),
    })
    const nested = await child({ prompt: 'Ask.', tools: ['ask'] })
    append({ role: 'user', content: [standard, named, nested].map(({ answer, turns }) => `${answer}:${turns}`).join() })
    await turn()
  },
  reward: ({ messages }) => messages.length,
})

const leadingScript = ({ messages }: { messages: readonly Message[] }) => {
  const asked = firstText(messages)
  if (asked === 'Look.' && !isAnswered(messages)) return calls({ look: {} })
  if (asked === 'Ask.' && !isAnswered(messages)) return calls({ ask: {} })
  return `done with ${asked}`
}

test('a child runs the standard agent unless it names one; an agent can start children', async () => {
  const { records } = await runScripted({ environment: leading, script: leadingScript })
  expect(records[0]).toMatchObject({ outcome: 'completed', turns: 2, children: 4, toolCalls: 2, reward: 4 })
  expect(records[0]?.messages[2]).toEqual({
    role: 'user',
    content: 'done with Look.:2,done with Answer twice.:2,done with Ask.:2',
  })
})

test('an export has the messages of all children, and their nodes with tokens', async () => {
  await using runs = await temporaryRuns()
  const evaluation = evaluate({
    environment: leading,
    model: { name: 'scripted' },
    backends: { scripted: [new ScriptedBackend(leadingScript)] },
    preflight: false,
    run: { root: runs.root },
  })
  const [record] = await Array.fromAsync(evaluation)
  const { folder } = await evaluation.summary()
  using reader = RunReader.open(folder)
  for (const tokens of [false, true]) {
    const [line] = await Array.fromAsync(exportRollouts(reader, { format: 'jsonl', tokens }))
    const { childRollouts, nodes: _nodes, ...own } = JSON.parse(line ?? '') as ExportedLine
    expect(own).toEqual({ ...record, taskRow: {} })
    // By what each was asked: children that start in the same millisecond are in no order.
    const children = new Map(childRollouts.map((child) => [child.messages[0]?.content, child]))
    const asking = children.get('Ask.')
    const expected = [
      ['Look.', { parent: '0-0', answer: 'done with Look.', usage: { calls: 2 } }],
      ['Answer twice.', { parent: '0-0', answer: 'done with Answer twice.', usage: { calls: 2 } }],
      ['Ask.', { parent: '0-0', answer: 'done with Ask.', usage: { calls: 3 } }],
      ['Advise.', { parent: asking?.id, answer: 'done with Advise.', usage: { calls: 1 } }],
    ] as const
    for (const [prompt, child] of expected) expect(children.get(prompt)).toMatchObject(child)
    expect(childRollouts).toHaveLength(expected.length)
    for (const { nodes, messages, answer } of childRollouts) {
      expect(messages.at(-1)?.content).toBe(answer)
      expect(nodes?.map(({ message }) => message)).toEqual(tokens ? messages : undefined)
    }
  }
})

test('a child is sampled as its rollout is; one of a reward has only the sampling of the run', async () => {
  const asking = defineEnvironment({
    name: 'asking',
    task: z.object({}),
    tasks: () => [{}],
    forTask: () => ({ sampling: { temperature: 0.25, maxTokens: 70 } }),
    prompt: () => 'policy',
    update: async ({ child }) => {
      await child({ prompt: 'child' })
      await child({ prompt: 'cooler child', sampling: { temperature: 0 } })
      return undefined
    },
    tools: {
      help: {
        parameters: z.object({}),
        run: async (_, { child }) => (await child({ prompt: 'helper' })).answer,
      },
    },
    reward: async ({ child }) => (await child({ prompt: 'reviewer' })).outcome === 'completed',
  })
  const sampling = { topP: 0.5, maxTokens: 90 }
  const helped: Script = ({ messages }) =>
    firstText(messages) === 'reviewer' && !isAnswered(messages) ? calls({ help: {} }) : 'fine'
  const { backend, records } = await runScripted({ environment: asking, script: helped, sampling })
  expect(records).toMatchObject([{ reward: 1 }])
  const asked = backend.requests.map(({ messages, sampling: { seed: _seed, ...rest } }) => [firstText(messages), rest])
  expect(Object.fromEntries(asked)).toEqual({
    policy: { temperature: 0.25, ...sampling },
    child: { temperature: 0.25, ...sampling },
    'cooler child': { temperature: 0, ...sampling },
    reviewer: sampling,
    helper: sampling,
  })
})

interface ExportedLine {
  readonly nodes?: unknown
  readonly childRollouts: readonly (RolloutRecord & {
    readonly parent: string
    readonly nodes?: readonly MessageNode[]
  })[]
}
