import { defineEnvironment, z, type ChildRequest, type JudgeRequest, type RolloutContext } from 'millrace'
import { calls, runScripted } from 'millrace/testing'
import { expect, test } from 'vitest'

type Mistake = (context: RolloutContext<unknown, undefined, unknown>) => unknown

const base = { name: 'mistaken', task: z.object({}), tasks: () => [{}], prompt: () => 'go' }

// As JavaScript would write it, which has no types.
const child =
  (request: unknown): Mistake =>
  (context) =>
    context.child(request as ChildRequest)

const mistakes: Readonly<Record<string, readonly [Mistake, says: string]>> = {
  unknownField: [child({ prompt: 'x', limit: {} }), 'child(): `limit` is not known; did you mean `limits`?'],
  noPrompt: [child({}), 'child(): prompt: expected a text or a list of messages'],
  noRequest: [child('x'), 'child(): expected object, got string'],
  unknownTool: [child({ prompt: 'x', tools: ['nope'] }), 'there is no tool "nope" to hand on'],
  unknownModel: [child({ prompt: 'x', model: 'nope' }), 'there is no model named nope'],
  unknownServer: [
    ({ servers, signal }) => servers.call('nope', { tool: 'look', arguments: {}, signal }),
    'there is no tool server "nope"',
  ],
  badMetric: [({ metric }) => metric('m', Number.NaN), 'metric "m" must be a finite number'],
}

test('a wrong use of the tool context is reported with its position, as an exception is', async () => {
  const toolOf = ([mistake]: readonly [Mistake, string]) => ({
    parameters: z.object({}),
    run: async (_: object, context: Parameters<Mistake>[0]) => {
      await mistake(context)
      return 'done'
    },
  })
  const tools = Object.fromEntries(Object.entries(mistakes).map(([name, each]) => [name, toolOf(each)]))
  const callsOfAll = calls(Object.fromEntries(Object.keys(tools).map((name) => [name, {}])))
  const { records, summary } = await runScripted({
    environment: defineEnvironment({ ...base, tools, reward: () => 1 }),
    script: ({ messages }) => (messages.at(-1)?.role === 'user' ? callsOfAll : 'fine'),
  })
  const faults = Object.entries(mistakes).map(([tool, [, says]]) => ({
    tool,
    kind: expect.stringMatching(/^env_invalid at test\/rollout\/context-mistakes\.test\.ts:\d+$/),
    message: expect.stringContaining(says),
    calls: 1,
  }))
  expect(summary.toolFaults).toEqual(faults)
  expect(records).toMatchObject([{ outcome: 'completed', toolErrors: faults.length, toolFaults: faults }])
})

test.each([
  [{ rubric: 'Is it polite?' }, '`rubric` is not known'],
  [{ messages: 'Is it polite?' }, 'messages: expected a list of messages'],
  ['Is it polite?', 'expected object, got string'],
])('a judge request with %j is refused and not sent', async (request, problem) => {
  const environment = defineEnvironment({
    ...base,
    reward: async ({ judge }) => ((await judge(request as unknown as JudgeRequest)).content === null ? 0 : 1),
  })
  const { records, backend } = await runScripted({ environment, script: () => 'fine', maxTries: 5 })
  const message = expect.stringMatching(
    /^reward "reward" at test\/rollout\/context-mistakes\.test\.ts:\d+: judge\(\): /,
  )
  expect(records).toMatchObject([{ outcome: 'reward_error', error: { code: 'reward_failed', message } }])
  expect(records[0]?.error?.message).toContain(problem)
  expect(backend.requests).toHaveLength(1)
})

test.each([
  ['metric', ({ metric }) => metric('m', Number.NaN), 'metric "m" must be a finite number, not NaN'],
  ['child', child({ prompt: 'x', model: 'nope' }), 'there is no model named nope'],
] satisfies [string, Mistake, string][])(
  'an update with wrong %s is reported with its position',
  async (_, mistake, says) => {
    const environment = defineEnvironment({
      ...base,
      update: async (context) => {
        await mistake(context)
      },
      reward: () => 1,
    })
    const { records } = await runScripted({ environment, script: () => 'fine' })
    const message = expect.stringMatching(/^update at test\/rollout\/context-mistakes\.test\.ts:\d+: /)
    expect(records).toMatchObject([{ outcome: 'agent_error', error: { code: 'agent_failed', message } }])
    expect(records[0]?.error?.message).toContain(says)
  },
)

test('a context policy that starts a child with an invalid limit fails, and no request is sent', async () => {
  const environment = defineEnvironment({
    ...base,
    contextPolicy: async ({ child: start, messages }) => {
      await start({ prompt: 'shorten', limits: { maxToken: 5 } } as ChildRequest)
      return messages
    },
    reward: () => 1,
  })
  const { records, backend } = await runScripted({ environment, script: () => 'fine' })
  const message = expect.stringContaining('child(): limits: `maxToken` is not known; did you mean `maxTokens`?')
  expect(records).toMatchObject([{ outcome: 'agent_error', error: { code: 'agent_failed', message } }])
  expect(backend.requests).toHaveLength(0)
})

const one = (): number => 1

test.each([
  ['a component', { exact: one }, 'exact'],
  ['a component of weight 0', { exact: one, length: { weight: 0, score: () => 5 } }, 'length'],
  ['a component of the group', { exact: one, distinct: { group: () => [1] } }, 'distinct'],
  ['the only one', one, 'reward'],
])('a metric with the name of %s is refused', async (_, reward, name) => {
  const environment = defineEnvironment({ ...base, update: ({ metric }) => metric(name, 100), reward })
  const { records } = await runScripted({ environment, script: () => 'fine' })
  const message = expect.stringContaining(`metric "${name}" has the name of the reward "${name}"`)
  expect(records).toMatchObject([{ outcome: 'agent_error', error: { message } }])
})
