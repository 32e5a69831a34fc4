import {
  defineEnvironment,
  evaluate,
  MillraceError,
  replayRollout,
  RunReader,
  z,
  type EvaluateOptions,
  type Summary,
} from 'millrace'
import { calls, ScriptedBackend, temporaryRuns, type Script } from 'millrace/testing'
import { expect, test } from 'vitest'

/** Every call takes one token and costs a dollar. */
const reply = (message: ReturnType<typeof calls> | string): ReturnType<Script> => ({
  message: typeof message === 'string' ? { role: 'assistant', content: message } : message,
  finishReason: typeof message === 'string' ? 'stop' : 'tool_calls',
  usage: { calls: 1, input: 0, cachedInput: 0, output: 1, reasoning: 0 },
})

/** Asks a child through its tool, then answers. Where the tool says nothing of resuming, what is cut off starts over. */
const delegating = (resume?: 'reuse') =>
  defineEnvironment({
    name: 'delegating',
    task: z.object({ row: z.number() }),
    tasks: () => [{ row: 0 }],
    prompt: () => 'go',
    tools: {
      delegate: {
        parameters: z.object({}),
        ...(resume && { resume }),
        run: async (_arguments, { child }) => (await child({ prompt: 'help', tools: [] })).answer,
      },
    },
    reward: async ({ judge, answer }) =>
      (await judge({ messages: [{ role: 'user', content: answer }] })).content === 'ok',
  })

const script: Script = ({ messages }) => {
  if (messages[0]?.content === 'done') return reply('ok')
  if (messages[0]?.content === 'help' || messages.length > 1) return reply('done')
  return reply(calls({ delegate: {} }))
}

async function sit(
  root: string,
  options: Partial<EvaluateOptions> & Pick<EvaluateOptions, 'environment'>,
  {
    hangAt = Infinity,
    script: answer = script,
  }: {
    /** Never answers this call; the run is stopped there. */
    hangAt?: number
    script?: Script
  } = {},
): Promise<Summary & { asked: number }> {
  let asked = 0
  const backend = new ScriptedBackend((request) => {
    if (asked === hangAt) {
      evaluation.stop()
      return new Promise((_, reject) => request.signal.addEventListener('abort', () => reject(request.signal.reason)))
    }
    asked += 1
    return answer(request)
  })
  const evaluation = evaluate({
    model: {
      name: 'scripted',
      backends: [{ url: 'http://scripted.invalid' }],
      price: { input: 0, output: 1_000_000 },
    },
    backends: { scripted: [backend] },
    preflight: false,
    ...options,
    run: { root, name: 'spent', ...options.run },
  })
  return { ...(await evaluation.summary()), asked }
}

const dollars = ({ cost, discarded, unfinished }: Summary): number =>
  (cost ?? 0) + discarded.costUsd + unfinished.costUsd

test('the summary includes the cost of an abandoned attempt, with its children and judges', async () => {
  await using runs = await temporaryRuns()
  const environment = delegating()
  const first = await sit(runs.root, { environment }, { hangAt: 2 })
  expect(first).toMatchObject({ end: 'stopped', rollouts: 0, cost: 0, asked: 2 })
  expect(first.unfinished).toMatchObject({ attempts: 1, usage: { calls: 2, output: 2 }, costUsd: 2 })
  const second = await sit(runs.root, { environment }, { hangAt: 3 })
  expect(second).toMatchObject({ end: 'stopped', asked: 3, discarded: { attempts: 1, costUsd: 2 } })
  expect(second.unfinished).toMatchObject({ attempts: 1, costUsd: 3 })
  const third = await sit(runs.root, { environment })
  expect(third).toMatchObject({ end: 'complete', asked: 4, cost: 4, discarded: { attempts: 2, costUsd: 5 } })
  expect(third.discarded.usage).toMatchObject({ calls: 5, output: 5 })
  expect(third.unfinished).toMatchObject({ attempts: 0, costUsd: 0 })
  expect(dollars(third)).toBe(first.asked + second.asked + third.asked)
})

test('a resumed attempt is paid for once', async () => {
  await using runs = await temporaryRuns()
  const environment = delegating('reuse')
  const first = await sit(runs.root, { environment }, { hangAt: 2 })
  const second = await sit(runs.root, { environment })
  expect(second).toMatchObject({ end: 'complete', asked: 2, cost: 4, discarded: { attempts: 0 } })
  expect(dollars(second)).toBe(first.asked + second.asked)
})

test.each([undefined, 'reuse'] as const)('--max-cost applies across launches, however they end: %s', async (resume) => {
  await using runs = await temporaryRuns()
  const environment = delegating(resume)
  await sit(runs.root, { environment }, { hangAt: 2 })
  const broke = await sit(runs.root, { environment, maxCostUsd: 2 })
  expect(broke).toMatchObject({ end: 'max_cost', asked: 0 })
  const enough = await sit(runs.root, { environment, maxCostUsd: 100 })
  expect(enough).toMatchObject({ end: 'complete' })
})

test('--retry-failed keeps the cost of an attempt that only lacked its score and cannot be read back', async () => {
  await using runs = await temporaryRuns()
  const { folder } = await sit(runs.root, {
    environment: {
      ...delegating(),
      reward: () => {
        throw new Error('no score')
      },
    },
  })
  const again = await sit(runs.root, { environment: delegating(), run: { retryFailed: true } })
  expect(again).toMatchObject({ end: 'complete', cost: 4, discarded: { attempts: 1, costUsd: 3 } })
  using reader = RunReader.open(folder)
  expect(reader.spending('0-0', 1)).toMatchObject({ usage: { calls: 3 }, cost: 3 })
})

/** Its reward asks two judges, one after the other. */
const judgedTwice = defineEnvironment({
  name: 'judged-twice',
  task: z.object({ row: z.number() }),
  tasks: () => [{ row: 0 }],
  prompt: () => 'help',
  reward: async ({ judge }) => {
    for (const content of ['first', 'second']) await judge({ messages: [{ role: 'user', content }] })
    return 1
  },
})

test('judge calls that are repeated are paid for again, and a replay is identical', async () => {
  await using runs = await temporaryRuns()
  const environment = judgedTwice
  const first = await sit(runs.root, { environment }, { hangAt: 2 })
  expect(first).toMatchObject({ end: 'stopped', asked: 2, unfinished: { costUsd: 2 } })
  const second = await sit(runs.root, { environment }, { hangAt: 1 })
  expect(second).toMatchObject({ end: 'stopped', asked: 1, unfinished: { costUsd: 3 } })
  const third = await sit(runs.root, { environment })
  expect(third).toMatchObject({ end: 'complete', asked: 2, cost: 5, judgeUsage: { calls: 4 } })
  expect(dollars(third)).toBe(first.asked + second.asked + third.asked)
  using reader = RunReader.open(third.folder)
  expect(await replayRollout(reader, '0-0', { environment })).toMatchObject({ verdict: 'identical' })
})

test('the cost of rescoring is reported before rescoring ends', async () => {
  await using runs = await temporaryRuns()
  const failed = await sit(runs.root, { environment: { ...judgedTwice, reward: () => Number.NaN } })
  expect(failed).toMatchObject({ end: 'complete', asked: 1, cost: 1 })
  const stopped = await sit(runs.root, { environment: judgedTwice, run: { retryFailed: true } }, { hangAt: 1 })
  expect(stopped).toMatchObject({ end: 'stopped', asked: 1, unfinished: { attempts: 1, costUsd: 2 } })
  const scored = await sit(runs.root, { environment: judgedTwice })
  expect(scored).toMatchObject({ end: 'complete', asked: 2, cost: 4, discarded: { attempts: 0 } })
})

/** What comes between an attempt and the work that it had done before it was cut off: then its agent does not repeat that work. */
const hindrances = ['setup', 'prompt', 'a tool that is called again', 'a child that is asked something else'] as const

test.each(hindrances)(
  'the cost of an interrupted attempt stays counted when it cannot repeat its work because of: %s',
  async (by) => {
    await using runs = await temporaryRuns()
    let isHindered = false
    const hinder = (where: (typeof hindrances)[number]): void => {
      if (isHindered && where === by) throw new MillraceError('tool_infra', 'not this time')
    }
    const environment = defineEnvironment({
      name: 'hindered',
      task: z.object({ row: z.number() }),
      tasks: () => [{ row: 0 }],
      setup: () => hinder('setup'),
      prompt: () => {
        hinder('prompt')
        return 'go'
      },
      tools: {
        delegate: {
          parameters: z.object({}),
          resume: 'rerun',
          run: async (_arguments, { child }) => {
            hinder('a tool that is called again')
            const prompt = isHindered && by === hindrances[3] ? 'help me' : 'help'
            return (await child({ prompt, tools: [] })).answer
          },
        },
      },
      reward: () => 1,
    })
    const hangAt = by === hindrances[3] ? 2 : 3
    const helped: Script = (request) => {
      const { messages } = request
      if (messages[0]?.content === 'help me') return reply('done')
      // The child of the second turn is cut off.
      return messages.length === 3 ? reply(calls({ delegate: {} })) : script(request)
    }
    const first = await sit(runs.root, { environment, retries: 0 }, { hangAt, script: helped })
    expect(first).toMatchObject({ end: 'stopped', unfinished: { costUsd: hangAt } })
    isHindered = true
    const second = await sit(runs.root, { environment, retries: 0 }, { script: helped })
    expect(second).toMatchObject({ end: 'complete', rollouts: 1 })
    expect(dollars(second)).toBe(first.asked + second.asked)
  },
)
