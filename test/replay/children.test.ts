import {
  defineEnvironment,
  evaluate,
  forkRollout,
  MillraceError,
  replayRun,
  z,
  type Message,
  type RolloutRecord,
} from 'millrace'
import { calls, ScriptedBackend, temporaryRuns, type Script } from 'millrace/testing'
import { describe, expect, test } from 'vitest'
import { openRun, scripted, storeRun } from '../support/replay/stored-runs.ts'

/** A tool whose answers are enough asks a child, which asks one itself; so does an update, with the same words. */
const environment = defineEnvironment({
  name: 'asking',
  task: z.object({}),
  tasks: () => [{}],
  prompt: () => 'Go.',
  tools: {
    ask: {
      parameters: z.object({ what: z.string().default('Review it.') }),
      resume: 'reuse',
      run: async ({ what }, { child }) => (await child({ prompt: what, tools: ['think'] })).answer,
    },
    think: {
      parameters: z.object({}),
      resume: 'reuse',
      run: async (_, { child }) => (await child({ prompt: 'Think.', tools: [] })).answer,
    },
  },
  update: async ({ messages, child }) => {
    if (messages[0]?.content === 'Go.') await child({ prompt: 'Review it.', tools: [] })
  },
  reward: ({ budget }) => budget.turnsLeft,
  limits: { maxTurns: 100 },
})

const replies = (messages: readonly Message[]): number => messages.filter(({ role }) => role === 'assistant').length

/** Three turns, two of which ask. `who` tells the children of one launch from those of another. */
const script =
  (who: string): Script =>
  ({ messages, tools }) => {
    const [first] = messages
    if (first?.content === 'Think.') return `thought by ${who}`
    if (String(first?.content).startsWith('Review')) {
      return tools.length > 0 && replies(messages) === 0 ? calls({ think: {} }) : `reviewed by ${who}`
    }
    return replies(messages) < 2 ? calls({ ask: {} }) : 'done'
  }

const answers = (record: RolloutRecord | undefined) =>
  record?.messages.filter(({ role }) => role === 'tool').map(({ content }) => content)

const figures = (record: RolloutRecord | undefined) => {
  if (!record) return undefined
  const { children, usage, cost, toolCalls, turns, reward } = record
  return { children, usage, cost, toolCalls, turns, reward }
}

async function whole(root: string): Promise<ReturnType<typeof figures>> {
  await storeRun(root, { environment, script: script('the first') })
  using reader = openRun(root)
  // In each of two turns: one that the tool asks, one below it, one of the update; and one more of the last update.
  expect(reader.rollout('0-0')).toMatchObject({ children: 7, turns: 3 })
  return figures(reader.rollout('0-0'))
}

async function forked(root: string, options: { readonly signal?: AbortSignal; readonly script?: Script } = {}) {
  const backend = new ScriptedBackend(options.script ?? script('the other'))
  using reader = openRun(root)
  const evaluation = await forkRollout(reader, {
    rollout: '0-0',
    turn: 1,
    environment,
    preflight: false,
    model: scripted,
    backends: { scripted: [backend] },
    run: { root, name: 'forked' },
    ...(options.signal && { signal: options.signal }),
  })
  return { records: await Array.fromAsync(evaluation), backend }
}

async function verdicts(root: string, name: string): Promise<string[]> {
  using reader = openRun(root, name)
  const reports = await Array.fromAsync(replayRun(reader, { environment }))
  return reports.map(({ verdict, differences }) => `${verdict} ${JSON.stringify(differences)}`)
}

/** Aborts when the model is asked to go on after a number of replies. */
function stopping(stop: AbortController, before: Script, after = 1): Script {
  return (request) => {
    if (request.messages[0]?.content !== 'Go.' || replies(request.messages) !== after) return before(request)
    stop.abort()
    return new Promise((_, reject) => request.signal.addEventListener('abort', () => reject(request.signal.reason)))
  }
}

describe('children of a tool that is answered from the recording', () => {
  test('count in a resumed rollout, and later children are run', async () => {
    await using runs = await temporaryRuns()
    const expected = await whole(runs.root)
    const stop = new AbortController()
    const launch = (spoken: Script, signal?: AbortSignal) =>
      evaluate({
        environment,
        preflight: false,
        model: scripted,
        backends: { scripted: [new ScriptedBackend(spoken)] },
        run: { root: runs.root, name: 'resumed' },
        ...(signal && { signal }),
      })
    const stopped = await launch(stopping(stop, script('the first')), stop.signal).summary()
    expect(stopped).toMatchObject({ end: 'stopped', rollouts: 0 })
    const [record] = await Array.fromAsync(launch(script('the second')))
    expect(record?.attempt).toBe(1)
    expect(answers(record)).toEqual(['reviewed by the first', 'reviewed by the second'])
    expect(figures(record)).toEqual(expected)
    expect(await verdicts(runs.root, 'resumed')).toEqual(['identical []'])
  })

  test('count in a fork, which can be replayed and stopped', async () => {
    await using runs = await temporaryRuns()
    const expected = await whole(runs.root)
    const { records } = await forked(runs.root)
    expect(answers(records[0])).toEqual(['reviewed by the first', 'reviewed by the other'])
    expect(figures(records[0])).toEqual(expected)
    expect(await verdicts(runs.root, 'forked')).toEqual(['identical []'])
  })

  test('count once in a resumed fork', async () => {
    await using runs = await temporaryRuns()
    const expected = await whole(runs.root)
    const stop = new AbortController()
    await forked(runs.root, { signal: stop.signal, script: stopping(stop, script('the other')) })
    const { records } = await forked(runs.root, { script: script('the third') })
    expect(answers(records[0])).toEqual(['reviewed by the first', 'reviewed by the third'])
    expect(figures(records[0])).toEqual(expected)
    expect(await verdicts(runs.root, 'forked')).toEqual(['identical []'])
  })

  test('do not count in a fork that runs other children instead', async () => {
    await using runs = await temporaryRuns()
    const expected = await whole(runs.root)
    const asking: Script = (request) =>
      request.messages[0]?.content === 'Go.' && replies(request.messages) === 1
        ? calls({ ask: { what: 'Review that.' } })
        : script('the other')(request)
    const stop = new AbortController()
    await forked(runs.root, { signal: stop.signal, script: stopping(stop, asking, 2) })
    const { records, backend } = await forked(runs.root)
    // The last reply, and the child of its update.
    expect(backend.requests).toHaveLength(2)
    const { children, reward, usage } = records[0] ?? {}
    expect({ children, reward, calls: usage?.calls }).toEqual({
      children: expected?.children,
      reward: expected?.reward,
      calls: expected?.usage.calls,
    })
  })

  test('count in a replay', async () => {
    await using runs = await temporaryRuns()
    await whole(runs.root)
    using reader = openRun(runs.root)
    expect(await Array.fromAsync(replayRun(reader, { environment }))).toMatchObject([
      { verdict: 'identical', differences: [], children: { replayed: 3, kept: 4 } },
    ])
  })

  test.each(['native', 'hermes'] as const)(
    'count if the call was never answered, with %s calls',
    async (toolFormat) => {
      await using runs = await temporaryRuns()
      const failing = defineEnvironment({
        name: 'failing',
        task: z.object({}),
        tasks: () => [{}],
        prompt: () => 'Go.',
        ...(toolFormat !== 'native' && { toolFormat }),
        tools: {
          ask: {
            parameters: z.object({}),
            run: async (_, { child }) => {
              await child({ prompt: 'Think.', tools: [] })
              throw new MillraceError('tool_infra', 'its server is gone')
            },
          },
        },
        reward: () => 1,
      })
      await storeRun(runs.root, {
        environment: failing,
        script: ({ messages }) => {
          if (messages.some(({ content }) => content === 'Think.')) return 'thought'
          return toolFormat === 'native'
            ? calls({ ask: {} })
            : '<tool_call>{"name": "ask", "arguments": {}}</tool_call>'
        },
      })
      using reader = openRun(runs.root)
      expect(reader.rollout('0-0')).toMatchObject({ outcome: 'tool_infra_error', children: 1, usage: { calls: 2 } })
      expect(await Array.fromAsync(replayRun(reader, { environment: failing }))).toMatchObject([
        { verdict: 'identical', differences: [], children: { replayed: 0, kept: 1 } },
      ])
    },
  )
})

test.each(['rerun', 'reuse'] as const)(
  'a timeout during a tool (%s) that waited for a child ends the replay at the same place',
  async (resume) => {
    await using runs = await temporaryRuns()
    const waiting = defineEnvironment({
      name: 'waiting',
      task: z.object({}),
      tasks: () => [{}],
      prompt: () => 'Go.',
      tools: {
        ask: {
          parameters: z.object({}),
          resume,
          run: async (_, { child }) => (await child({ prompt: 'Review it.', tools: [] })).answer,
        },
      },
      reward: () => 1,
      limits: { timeoutMs: 500 },
    })
    await storeRun(runs.root, {
      environment: waiting,
      script: ({ messages, signal }) => {
        if (messages[0]?.content === 'Go.') return calls({ ask: {} })
        return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
      },
    })
    using reader = openRun(runs.root)
    expect(reader.rollout('0-0')).toMatchObject({ outcome: 'infra_timeout', toolCalls: 0, children: 1 })
    const reports = await Array.fromAsync(replayRun(reader, { environment: waiting }))
    expect(reports).toMatchObject([{ verdict: 'identical', differences: [] }])
  },
)
