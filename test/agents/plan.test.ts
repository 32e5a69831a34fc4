import { defineEnvironment, plan, textOf, z, type Message } from 'millrace'
import { runScripted, type Script } from 'millrace/testing'
import { describe, expect, test } from 'vitest'
import { cutAnywhere } from '../support/agents/cut-anywhere.ts'

const environment = defineEnvironment({
  name: 'sums',
  task: z.object({ question: z.string() }),
  tasks: () => [{ question: 'Add up the prices of tea and milk.' }],
  prompt: ({ task }) => task.question,
  agent: plan({ maxCalls: 4 }),
  tools: {
    price: {
      description: 'The price of a thing.',
      parameters: z.object({ of: z.string() }),
      resume: 'reuse',
      run: ({ of }) => {
        if (of === 'gold') throw new Error('too dear')
        return { tea: 4, milk: 3 }[of] ?? 0
      },
    },
    add: {
      parameters: z.object({ left: z.number(), right: z.number(), note: z.string().optional() }),
      resume: 'rerun',
      run: ({ left, right, note }) => (note === undefined ? left + right : `${note}: ${left + right}`),
    },
    ask: {
      parameters: z.object({ whom: z.string() }),
      resume: 'reuse',
      run: async ({ whom }, { child }) => (await child({ prompt: `You are ${whom}.`, tools: [] })).answer,
    },
  },
  reward: ({ answer }) => answer === '7',
})

const isPlanning = (messages: readonly Message[]): boolean =>
  messages.some((message) => textOf(message).includes('Reply with the plan'))
const feedbackIn = (messages: readonly Message[]): string | undefined => {
  const last = textOf(messages.at(-1) as Message)
  return last.startsWith('That is not a plan') ? last : undefined
}

/** A model that plans so, corrects its plan so, and answers with the last result. */
const planning =
  (first: string, corrected = '[]'): Script =>
  ({ messages }) => {
    if (isPlanning(messages)) return feedbackIn(messages) === undefined ? first : corrected
    if (textOf(messages[0] as Message).startsWith('You are')) return 'hello'
    return textOf(messages.at(-1) as Message)
  }

const good = JSON.stringify([
  { id: 'E1', tool: 'price', arguments: { of: 'tea' } },
  { id: 'E2', tool: 'price', arguments: { of: 'milk' } },
  { id: 'E3', tool: 'add', arguments: { left: '#E1', right: '#E2' } },
])

const shapeOf = (messages: readonly Message[] = []): string[] =>
  messages.map((message) =>
    message.role === 'assistant' && message.tool_calls
      ? message.tool_calls.map((call) => `${call.function.name} ${call.function.arguments}`).join(' + ')
      : `${message.role}: ${textOf(message)}`,
  )

test('makes the calls of the plan, those that need no other at once, and answers with two model turns', async () => {
  const { records, backend } = await runScripted({ environment, script: planning(good) })
  expect(records).toMatchObject([{ outcome: 'completed', reward: 1, turns: 1, children: 1, toolCalls: 3 }])
  expect(shapeOf(records[0]?.messages)).toEqual([
    'user: Add up the prices of tea and milk.',
    'price {"of":"tea"} + price {"of":"milk"}',
    'tool: 4',
    'tool: 3',
    'add {"left":4,"right":3}',
    'tool: 7',
    'assistant: 7',
  ])
  const [asked, answered] = backend.requests
  expect(backend.requests).toHaveLength(2)
  // The plan is asked for in the one user message, with the tools as text; the answer may call none.
  expect(asked).toMatchObject({ tools: [], messages: [{ role: 'user' }] })
  expect(textOf(asked?.messages[0] as Message)).toContain('"name":"price","description":"The price of a thing."')
  expect(answered?.toolChoice).toBe('none')
  expect(answered?.tools).toHaveLength(3)
})

test.each([
  ['in a fence', `Here it is:\n\`\`\`json\n${good}\n\`\`\`\nThat is all.`],
  ['among words', `I would do ${good}, I think.`],
  ['behind thoughts', `<think>[1, 2]</think>${good}`],
  ['in an object', `{"plan": ${good}}`],
  [
    'with names, text arguments and no ids',
    good
      .replaceAll('"tool"', '"name"')
      .replaceAll(/"id":"E\d",/g, '')
      .replace('{"of":"tea"}', String.raw`"{\"of\":\"tea\"}"`),
  ],
])('reads a plan %s', async (_, text) => {
  const { records } = await runScripted({ environment, script: planning(text) })
  expect(records).toMatchObject([{ reward: 1, toolCalls: 3 }])
})

describe('references', () => {
  test('stand for results inside a text too, and other words behind a # stay', async () => {
    const text = JSON.stringify([
      { id: 'E1', tool: 'price', arguments: { of: 'tea' } },
      { id: 'E2', tool: 'add', arguments: { left: '#E1', right: 1, note: '#1 of #tea costs #E1.' } },
    ])
    const { records } = await runScripted({ environment, script: planning(text) })
    expect(records[0]?.messages.at(-1)?.content).toBe('#1 of #tea costs 4.: 5')
  })

  const chained = JSON.stringify([
    { id: 'E1', tool: 'price', arguments: { of: 'gold' } },
    { id: 'E2', tool: 'add', arguments: { left: '#E1', right: 1 } },
    { id: 'E3', tool: 'price', arguments: { of: 'tea' } },
    { id: 'E4', tool: 'add', arguments: { left: '#E3', right: 1 } },
    { id: 'E5', tool: 'price', arguments: { of: 'see #E2' } },
  ])
  const roomy = defineEnvironment({ ...environment, agent: plan() })

  test('to a call that failed are not carried out, and the model is told so', async () => {
    const { records } = await runScripted({ environment: roomy, script: planning(chained) })
    expect(shapeOf(records[0]?.messages).slice(1, -1)).toEqual([
      'price {"of":"gold"} + price {"of":"tea"}',
      expect.stringMatching(/^tool: Error: .*too dear/),
      'tool: 4',
      'add {"left":4,"right":1} + add {"left":"#E1","right":1}',
      'tool: 5',
      'tool: Not made: it needs #E1, and there is no such result, because a call failed.',
      'price {"of":"see #E2"}',
      'tool: Not made: it needs #E2, and there is no such result, because a call failed.',
    ])
    expect(records).toMatchObject([{ outcome: 'completed', toolCalls: 3, toolErrors: 1 }])
  })

  test('to a call that failed are not carried out either where the rollout is cut off and resumed', async () => {
    const [whole, ...cut] = await cutAnywhere(roomy, planning(chained))
    expect(whole).toMatchObject({ record: { outcome: 'completed', toolCalls: 3 }, replay: ['identical'] })
    for (const run of cut) expect(run, `cut at ${run.cutAt}`).toEqual({ ...whole, cutAt: run.cutAt })
  })
})

const call = (id: string, tool: string, args: object) => ({ id, tool, arguments: args })

test.each([
  ['words alone', 'First the prices, then the sum.', 'there is no JSON array in it'],
  [
    'a reference to nothing',
    [call('E1', 'add', { left: '#E2', right: 1 })],
    'E1 refers to #E2, and no call has that id',
  ],
  [
    'a circle',
    [call('E1', 'add', { left: '#E2', right: 1 }), call('E2', 'add', { left: '#E1', right: 1 })],
    "E1 and E2 wait for each other's results",
  ],
  [
    'an unknown tool',
    [call('E1', 'prize', {})],
    'call 1 names the tool prize, which does not exist; did you mean price?',
  ],
  ['one id twice', [call('E1', 'price', { of: 'tea' }), call('E1', 'price', {})], 'two calls have the id E1'],
  ['too many calls', Array(5).fill(call('E1', 'price', {})), 'it has 5 calls, and at most 4 are allowed'],
  [
    'arguments that are nested too deeply',
    `[{"tool": "price", "arguments": {"of": ${'['.repeat(3000)}${']'.repeat(3000)}}}]`,
    'the arguments of call 1 are nested more than 100 deep',
  ],
  ['arguments that are none', [{ tool: 'price', arguments: 'tea' }], 'the arguments of call 1 are not an object'],
])('sends %s back once, with what is wrong', async (_, text, problem) => {
  const first = typeof text === 'string' ? text : JSON.stringify(text)
  const { records, backend } = await runScripted({ environment, script: planning(first, good) })
  expect(records).toMatchObject([{ reward: 1, toolCalls: 3 }])
  const feedback = backend.requests.map(({ messages }) => feedbackIn(messages) ?? '').find((each) => each !== '')
  expect(feedback).toContain(problem)
})

test('answers without calls where the second plan is none either, and where the plan is empty', async () => {
  for (const [first, turns] of [
    ['no', 3],
    ['[]', 2],
  ] as const) {
    const { records, backend } = await runScripted({ environment, script: planning(first, 'no again') })
    expect(records).toMatchObject([{ outcome: 'completed', toolCalls: 0, turns: 1 }])
    expect(backend.requests).toHaveLength(turns)
  }
})

test('plans again after each message of the environment', async () => {
  const insisting = defineEnvironment({
    ...environment,
    update: ({ messages }) =>
      messages.filter(({ role }) => role === 'user').length < 2
        ? { messages: [{ role: 'user' as const, content: 'Again.' }] }
        : undefined,
  })
  const { records } = await runScripted({ environment: insisting, script: planning(good) })
  expect(records).toMatchObject([{ reward: 1, turns: 2, children: 2, toolCalls: 6 }])
})

test('a plan that could not be asked for fails the rollout as the model failed', async () => {
  const { records } = await runScripted({
    environment,
    retries: 0,
    script: ({ messages }) => {
      if (isPlanning(messages)) throw new Error('down')
      return '7'
    },
  })
  expect(records).toMatchObject([{ outcome: 'model_error', reward: null }])
  const cut = await runScripted({
    environment,
    script: () => ({ message: { role: 'assistant', content: '[{"to' }, finishReason: 'length' }),
  })
  expect(cut.records).toMatchObject([{ outcome: 'max_tokens' }])
})

test('with calls written as text it says what to leave out', async () => {
  const { records } = await runScripted({
    environment: defineEnvironment({ ...environment, toolFormat: 'hermes' }),
    retries: 0,
    script: planning(good),
  })
  expect(records).toMatchObject([
    { outcome: 'agent_error', error: { message: expect.stringContaining('leave out the tool format') } },
  ])
})

test('wherever it is cut off, it goes on as if it had not been, and replays', async () => {
  const asking = JSON.stringify([
    { id: 'E1', tool: 'ask', arguments: { whom: 'tea' } },
    { id: 'E2', tool: 'ask', arguments: { whom: 'milk' } },
    { id: 'E3', tool: 'ask', arguments: { whom: 'a friend of #E1 and #E2' } },
    { id: 'E4', tool: 'ask', arguments: { whom: 'tea' } },
  ])
  const [whole, ...cut] = await cutAnywhere(environment, planning('no plan', asking))
  expect(whole).toMatchObject({ record: { outcome: 'completed', children: 5, toolCalls: 4 }, replay: ['identical'] })
  expect(cut).toHaveLength(7)
  for (const run of cut) expect(run, `cut at ${run.cutAt}`).toEqual({ ...whole, cutAt: run.cutAt })
})
