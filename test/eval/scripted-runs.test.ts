import { defineEnvironment, judge, MillraceError, z } from 'millrace'
import { calls, runScripted, ScriptedBackend } from 'millrace/testing'
import { expect, test } from 'vitest'

const base = {
  name: 'scripted',
  task: z.object({}),
  tasks: () => [{}],
  prompt: () => 'Go.',
}

test('a judge and a child on other models can have their own scripts', async () => {
  const grader = new ScriptedBackend(() => 'Score: 0.5')
  const helper = new ScriptedBackend(() => 'helped')
  const { records, backend } = await runScripted({
    environment: defineEnvironment({
      ...base,
      tools: {
        ask: {
          parameters: z.object({}),
          run: async (_, { child }) => (await child({ prompt: 'Help.', model: 'helper', tools: [] })).answer,
        },
      },
      reward: judge({ rubric: 'Is it good?' }),
    }),
    script: ({ messages }) => (messages.at(-1)?.role === 'tool' ? 'done' : calls({ ask: {} })),
    judge: 'grader',
    models: { helper: {} },
    backends: { grader: [grader], helper: [helper] },
  })
  expect(records).toMatchObject([{ outcome: 'completed', reward: 0.5, children: 1 }])
  expect([backend, helper, grader].map(({ requests }) => requests.length)).toEqual([2, 1, 1])
})

test('one tool can be called twice in a turn', async () => {
  const { records } = await runScripted({
    environment: defineEnvironment({
      ...base,
      tools: { double: { parameters: z.object({ n: z.number() }), run: ({ n }) => 2 * n } },
      reward: ({ messages }) => messages.filter(({ role }) => role === 'tool').length,
    }),
    script: ({ messages }) =>
      messages.at(-1)?.role === 'tool' ? 'done' : calls({ double: { n: 1 } }, { double: { n: 2 } }),
  })
  expect(records[0]).toMatchObject({ reward: 2, toolCalls: 2, toolErrors: 0 })
  expect(records[0]?.messages.filter(({ role }) => role === 'tool').map(({ content }) => content)).toEqual(['2', '4'])
})

test('a tool call can be written without arguments and with invalid JSON', () => {
  const written = calls({ one: undefined, two: '{"n": ' }).tool_calls?.map((call) => call.function.arguments)
  expect(written).toEqual(['{}', '{"n": '])
})

test('the error for a script that returns nothing quotes the request', async () => {
  const { records } = await runScripted({
    environment: defineEnvironment({ ...base, reward: () => 1 }),
    script: () => undefined as unknown as string,
    retries: 0,
  })
  expect(records[0]).toMatchObject({
    outcome: 'model_error',
    error: {
      code: 'model_malformed',
      message: expect.stringContaining('the script has no answer to "user: Go.": return a text'),
    },
  })
})

test('a scripted reply needs only its message: finish reason and usage follow from it', async () => {
  const { records, summary } = await runScripted({
    environment: defineEnvironment({
      ...base,
      tools: { look: { parameters: z.object({}), run: () => 'seen' } },
      reward: () => 1,
    }),
    script: ({ messages }) =>
      messages.at(-1)?.role === 'tool'
        ? { message: { role: 'assistant', content: 'done' }, finishReason: 'length' }
        : { message: calls({ look: {} }), usage: { calls: 1, input: 5, cachedInput: 0, output: 7, reasoning: 0 } },
  })
  expect(records[0]).toMatchObject({ outcome: 'max_tokens', answer: 'done', toolCalls: 1 })
  expect(summary.usage.calls).toBe(2)
  expect(summary.usage.input).toBeGreaterThan(5)
})

test.each([
  [{ content: 'hi' }, "{ content: 'hi' }"],
  [{ message: 'hi' }, "{ message: 'hi' }"],
  [{ message: { role: 'user', content: 'hi' } }, "role: 'user'"],
  [5, '5'],
])('the error for a script that returns no answer quotes the returned value: %j', async (answer, shown) => {
  const { records } = await runScripted({
    environment: defineEnvironment({ ...base, reward: () => 1 }),
    script: () => answer as unknown as string,
    retries: 0,
  })
  const { code, message } = records[0]?.error ?? {}
  expect(code).toBe('model_malformed')
  expect(message).toContain('the script has no answer to "user: Go."; it returned ')
  expect(message).toContain(shown)
})

test('the scripted model has the price that `models` gives it', async () => {
  const usage = { calls: 1, input: 10, cachedInput: 0, output: 2, reasoning: 0 }
  const priced = async (models: object): Promise<unknown> => {
    const { summary } = await runScripted({
      environment: defineEnvironment({ ...base, reward: () => 1 }),
      script: () => ({ message: { role: 'assistant', content: 'done' }, usage }),
      ...models,
    })
    return summary.cost
  }
  expect(await priced({})).toBeCloseTo(12e-6, 12)
  expect(await priced({ models: { scripted: { price: { input: 1e6, output: 0.5e6 } } } })).toBe(11)
})

test.each([
  [{ script: () => 'fine', scripts: () => 'fine' }, '`scripts` is not known; did you mean `script`?'],
  [{ script: 'fine' }, 'script: expected a function'],
])('invalid options are reported as options of runScripted(): %j', async (wrong, message) => {
  const environment = defineEnvironment({ ...base, reward: () => 1 })
  const run = runScripted({ environment, ...wrong } as unknown as Parameters<typeof runScripted>[0])
  await expect(run).rejects.toThrow(`options of runScripted(): ${message}`)
})

test('an error thrown by a script is reported with file and line; a coded error stays as it is', async () => {
  const failed = async (thrown: Error) => {
    const { records } = await runScripted({
      environment: defineEnvironment({ ...base, reward: () => 1 }),
      script: () => {
        throw thrown
      },
    })
    return records[0]
  }
  expect(await failed(new TypeError('no such thing'))).toMatchObject({
    outcome: 'model_error',
    error: {
      code: 'model_server_error',
      message: expect.stringMatching(
        /the script threw TypeError at test\/eval\/scripted-runs\.test\.ts:\d+: no such thing/,
      ),
    },
  })
  const coded = await failed(new MillraceError('model_rejected', 'too long'))
  expect(coded?.error).toMatchObject({ code: 'model_rejected', message: expect.not.stringContaining('the script') })
})
