import {
  defineEnvironment,
  textOf,
  userSimulator,
  z,
  type EvaluateOptions,
  type FinishReason,
  type Message,
} from 'millrace'
import { calls, runScripted, ScriptedBackend, type Script } from 'millrace/testing'
import { describe, expect, test } from 'vitest'
import { cutAnywhere } from '../support/agents/cut-anywhere.ts'
import { openRun, storeRun } from '../support/replay/stored-runs.ts'
import { temporaryRuns } from 'millrace/testing'

const shop = {
  name: 'shop',
  task: z.object({ wish: z.string(), opening: z.string().optional() }),
  tasks: () => [{ wish: 'You want to return a lamp, and then a chair.' }],
  tools: {
    orders: { parameters: z.object({}), resume: 'reuse' as const, run: () => 'one lamp, one chair' },
  },
  reward: ({ messages }: { messages: readonly Message[] }) => messages.length,
}
const systemPrompt = (): Message[] => [{ role: 'system', content: 'You serve customers.' }]

const isUser = ([first]: readonly Message[]): boolean => textOf(first as Message).startsWith('You play the user')
const answered = (messages: readonly Message[]): number => messages.filter(({ role }) => role === 'assistant').length

/** A user who wants two things and leaves; a shop that looks into the orders once. */
const talk: Script = ({ messages, tools }) => {
  if (isUser(messages)) return ['The lamp back.', 'The chair too.', 'Thanks. ###STOP###'][answered(messages)] ?? 'again'
  if (tools.length > 0 && !messages.some(({ role }) => role === 'tool')) return calls({ orders: {} })
  return `Taken back, ${textOf(messages.findLast(({ role }) => role === 'user') as Message)}`
}

const said = (messages: readonly Message[] = []): string[] =>
  messages.map((message) => `${message.role}: ${textOf(message)}`)

describe('userSimulator', () => {
  const environment = defineEnvironment({
    ...shop,
    prompt: systemPrompt,
    agent: userSimulator({ personaField: 'wish' }),
  })

  test('lets a child play the user until it says the stop word; both conversations are recorded', async () => {
    await using runs = await temporaryRuns()
    const { summary } = await storeRun(runs.root, { environment, script: talk })
    expect(summary).toMatchObject({ outcomes: { completed: 1 } })
    using reader = openRun(runs.root)
    expect(said(reader.rollout('0-0')?.messages)).toEqual([
      'system: You serve customers.',
      'user: The lamp back.',
      'assistant: ',
      'tool: one lamp, one chair',
      'assistant: Taken back, The lamp back.',
      'user: The chair too.',
      'assistant: Taken back, The chair too.',
      'user: Thanks. ###STOP###',
    ])
    const children = reader.children('0-0')
    expect(children).toHaveLength(3)
    const [role, ...userside] = said(reader.nodes(children.at(-1)?.rollout ?? '', 1).map(({ message }) => message))
    expect(role).toContain('<persona>\nYou want to return a lamp, and then a chair.\n</persona>')
    // The user sees neither the instructions nor the tools of the shop.
    expect(userside).toEqual([
      'user: Hello, how can I help you?',
      'assistant: The lamp back.',
      'user: Taken back, The lamp back.',
      'assistant: The chair too.',
      'user: Taken back, The chair too.',
      'assistant: Thanks. ###STOP###',
    ])
  })

  test('asks its own model, has its own stop word, and lets the policy speak first where the prompt is the users', async () => {
    const user = new ScriptedBackend(({ messages }) => (answered(messages) === 1 ? 'And now? ' : 'BYE'))
    const { records, backend } = await runScripted({
      environment: defineEnvironment({
        ...shop,
        prompt: () => 'Hello?',
        agent: userSimulator({ model: 'customer', persona: 'You are in a hurry.', stop: 'BYE' }),
      }),
      models: { customer: { name: 'customer', price: { input: 1, output: 1 } } },
      backends: { customer: [user] },
      script: ({ messages }) => (isUser(messages) ? 'never' : 'Yes.'),
    } satisfies Omit<EvaluateOptions, 'model'> & { script: Script })
    expect(said(records[0]?.messages)).toEqual([
      'user: Hello?',
      'assistant: Yes.',
      'user: And now?',
      'assistant: Yes.',
      'user: BYE',
    ])
    expect(backend.requests).toHaveLength(2)
    expect(user.requests.map(({ messages }) => said(messages).slice(1))).toEqual([
      ['user: Hello, how can I help you?', 'assistant: Hello?', 'user: Yes.'],
      ['user: Hello, how can I help you?', 'assistant: Hello?', 'user: Yes.', 'assistant: And now?', 'user: Yes.'],
    ])
    expect(records[0]?.usage.calls).toBe(4)
  })

  test('ends after its turns, and where the environment or an empty user ends it', async () => {
    const forever: Script = ({ messages }) => (isUser(messages) ? 'More.' : 'Here.')
    const two = defineEnvironment({ ...shop, prompt: () => 'Hello?', agent: userSimulator({ turns: 2 }) })
    const first = await runScripted({ environment: two, script: forever })
    expect(said(first.records[0]?.messages)).toEqual([
      'user: Hello?',
      'assistant: Here.',
      'user: More.',
      'assistant: Here.',
    ])
    const ending = defineEnvironment({
      ...shop,
      prompt: () => 'Hello?',
      agent: userSimulator(),
      update: () => ({ end: true }),
    })
    expect((await runScripted({ environment: ending, script: forever })).backend.requests).toHaveLength(1)
    const silent = await runScripted({
      environment: two,
      script: ({ messages }) => (isUser(messages) ? '<think>I leave.</think>' : 'Here.'),
    })
    expect(silent.records[0]?.messages).toHaveLength(2)
  })

  test('a user that cannot be asked fails the rollout as its model failed', async () => {
    const { records } = await runScripted({
      environment,
      retries: 0,
      script: () => {
        throw new Error('down')
      },
    })
    expect(records).toMatchObject([{ outcome: 'model_error', children: 1, reward: null }])
  })

  test.each<[string, FinishReason, string, string]>([
    ['said half', 'length', 'I want', 'reached its length limit'],
    ['thought half', 'length', '<think>Do I', 'reached its length limit'],
    ['said nothing', 'content_filter', '', 'was withheld by a content filter'],
  ])('a reply of the user that was cut is not taken as said, nor as leaving: %s', async (_, ...cut) => {
    const [finishReason, content, why] = cut
    const script: Script = ({ messages }) =>
      isUser(messages) ? { message: { role: 'assistant', content }, finishReason } : 'Here.'
    const asking = defineEnvironment({ ...shop, prompt: () => 'Hello?', agent: userSimulator() })
    const { records } = await runScripted({ environment: asking, retries: 0, script })
    const error = { code: 'model_truncated', message: `the reply of the simulated user ${why}` }
    expect(records).toMatchObject([{ outcome: 'model_error', reward: null, error }])
    expect(said(records[0]?.messages)).toEqual(['user: Hello?', 'assistant: Here.'])
  })

  test('a reply of the user that used up the tokens of the rollout ends it as max_tokens', async () => {
    const usage = { calls: 1, input: 1, cachedInput: 0, output: 10, reasoning: 0 }
    const script: Script = ({ messages }) =>
      isUser(messages)
        ? { message: { role: 'assistant', content: 'I want' }, finishReason: 'length', usage }
        : { message: { role: 'assistant', content: 'Here.' }, usage }
    const limits = { maxTokens: 20 }
    const asking = defineEnvironment({ ...shop, limits, prompt: () => 'Hello?', agent: userSimulator() })
    const { records } = await runScripted({ environment: asking, retries: 0, script })
    expect(records).toMatchObject([{ outcome: 'max_tokens', truncated: true, reward: 2 }])
  })

  test('names what is wrong with its options and with a task', async () => {
    // As from JavaScript: the types refuse these.
    expect(() => userSimulator({ turn: 3 } as object)).toThrow('`turn` is not known; did you mean `turns`?')
    expect(() => userSimulator({ turns: 0 })).toThrow('the options of userSimulator()')
    const { records } = await runScripted({
      environment: defineEnvironment({ ...shop, prompt: systemPrompt, agent: userSimulator({ personaField: 'who' }) }),
      retries: 0,
      script: talk,
    })
    expect(records).toMatchObject([
      { outcome: 'agent_error', error: { message: expect.stringContaining('no text in its field who') } },
    ])
  })

  test('wherever it is cut off, it goes on as if it had not been, and replays', async () => {
    const [whole, ...cut] = await cutAnywhere(environment, talk)
    expect(whole).toMatchObject({ record: { outcome: 'completed', children: 3 }, replay: ['identical'] })
    expect(cut).toHaveLength(6)
    for (const run of cut) expect(run, `cut at ${run.cutAt}`).toEqual({ ...whole, cutAt: run.cutAt })
  })
})
