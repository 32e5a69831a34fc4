import { defineEnvironment, z, type Message } from 'millrace'
import { calls, runScripted } from 'millrace/testing'
import { expect, test } from 'vitest'
import { activeResources, leftSince } from '../src/kit/_testing/active-resources.ts'

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

test('children from a tool, an update and a reward share tools, state and budget, whatever the order', async () => {
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

test('what children use up their parent has used', async () => {
  const { records } = await runScripted({ environment, script, limits: { maxTurns: 4 } })
  expect(records[0]).toMatchObject({ outcome: 'max_turns', truncated: true })
})

test('a child that asks for a tool nobody has fails its tool call and leaves nothing running', async () => {
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
  [{ limits: { maxTurn: 2 } }, '`limits.maxTurn` is not known; did you mean `maxTurns`?'],
  [{ sampling: { max_tokens: 2 } }, '`sampling.max_tokens` is not known; did you mean `maxTokens`?'],
  [{ limits: { maxTurns: Number.NaN } }, '`limits.maxTurns` must be a number, not NaN'],
  [{ tool: ['look'] }, '`tool` is not known; did you mean `tools`?'],
])('a child is refused what it does not know: %j', async (misspelt: object, problem) => {
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

test('a limit of a child that is named and has no value is none of its own, and takes none away', async () => {
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

test('a child of an update is not asked for an update: a model can play the user', async () => {
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
