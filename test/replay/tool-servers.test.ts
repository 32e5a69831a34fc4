import {
  defineEnvironment,
  forkRollout,
  replayRun,
  rescoreRun,
  z,
  type Environment,
  type Message,
  type ServerConfig,
} from 'millrace'
import { calls, ScriptedBackend, temporaryRuns } from 'millrace/testing'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { misbehaving, ServerLog } from '../fixtures/mcp/misbehaving.ts'
import { openRun, scripted, storeRun } from '../support/replay/stored-runs.ts'

function environmentWith(sums: ServerConfig, toolFormat?: 'hermes'): Environment {
  return defineEnvironment({
    name: 'with-servers',
    task: z.object({ n: z.number() }),
    tasks: () => Array.from({ length: 6 }, (_, n) => ({ n })),
    // Asked in `setup` and twice in the reward, once with the same words.
    setup: async ({ task, servers, signal }) => {
      const { content } = await servers.call('sums', { tool: 'add', arguments: { a: task.n, b: 1 }, signal })
      return { expected: content }
    },
    prompt: ({ task }) => `Add 1 to ${task.n}.`,
    mcpServers: { sums },
    ...(toolFormat && { toolFormat }),
    reward: async ({ task, answer, servers, signal, state }) => {
      const again = await servers.call('sums', { tool: 'add', arguments: { a: task.n, b: 1 }, signal })
      const other = await servers.call('sums', { tool: 'add', arguments: { a: task.n, b: 2 }, signal })
      const isRight = answer.includes(String(state.expected)) && again.content === state.expected
      return isRight && Number(other.content) === task.n + 2
    },
  })
}

const native = ({ messages }: { messages: readonly Message[] }) => {
  const answer = messages.find(({ role }) => role === 'tool')
  if (answer) return String(answer.content)
  return calls({ add: { a: numberIn(messages), b: 1 }, no_such_tool: {} })
}

const inText = ({ messages }: { messages: readonly Message[] }) => {
  if (messages.some(({ role }) => role === 'assistant')) return JSON.stringify(messages.at(-1)?.content)
  return `<tool_call>{"name": "add", "arguments": {"a": ${numberIn(messages)}, "b": 1}}</tool_call>`
}

function numberIn(messages: readonly Message[]): number {
  return Number(/\d+ to (\d+)/.exec(messages.map(({ content }) => String(content)).join('\n'))?.[1])
}

describe.each([
  ['a shared server', { sharing: 'shared' }, undefined, native],
  ['a process per rollout, whose calls cannot be repeated', {}, undefined, native],
  ['a server whose calls may be made again', { sharing: 'shared', resume: 'rerun' }, undefined, native],
  ['a server whose tools are described in the prompt', { sharing: 'shared' }, 'hermes', inText],
] as const)('rollouts with %s', (_what, options, toolFormat, script) => {
  test('are replayed without the server', async () => {
    await using runs = await temporaryRuns()
    using log = new ServerLog()
    const environment = environmentWith({ ...misbehaving(log.mode), ...options }, toolFormat)
    const { summary } = await storeRun(runs.root, { environment, script })
    expect(summary.score?.mean).toBe(1)
    const before = { starts: log.count('start'), calls: log.count('call') }
    // Of each rollout: one by the model, three by the environment.
    expect(before.calls).toBe(24)
    using reader = openRun(runs.root)
    // The program of the server need not even be there any more, nor its secrets.
    const moved = environmentWith(
      { command: '/nowhere/server', env: { KEY: '${NO_SUCH_VARIABLE}' }, ...options },
      toolFormat,
    )
    const reports = await Array.fromAsync(replayRun(reader, { environment: moved }))
    expect(reports.map(({ verdict, why, first }) => ({ verdict, why, first }))).toEqual(
      reports.map(() => ({ verdict: 'identical', why: undefined, first: undefined })),
    )
    expect(reports).toHaveLength(6)
    const rescoring = await rescoreRun(reader, { environment: moved })
    await Array.fromAsync(rescoring)
    expect(rescoring.summary()).toMatchObject({ changed: 0, after: { scored: 6 }, failures: [] })
    expect({ starts: log.count('start'), calls: log.count('call') }).toEqual(before)
  })
})

test('a fork after an unrepeatable call is refused; otherwise the fork opens the server and continues', async () => {
  await using runs = await temporaryRuns()
  using log = new ServerLog()
  const kept = environmentWith(misbehaving(log.mode))
  await storeRun(runs.root, { environment: kept, script: native })
  const fork = async (environment: Environment, reusesTools: boolean, name: string) => {
    using reader = openRun(runs.root)
    const backend = new ScriptedBackend(({ messages }) => (messages.length < 6 ? calls({ add: { a: 1, b: 1 } }) : '3'))
    const evaluation = await forkRollout(reader, {
      rollout: '2-0',
      turn: 1,
      environment,
      reusesTools,
      model: scripted,
      preflight: false,
      backends: { scripted: [backend] },
      run: { root: runs.root, name },
    })
    return await Array.fromAsync(evaluation)
  }
  await expect(fork(kept, false, 'refused')).rejects.toThrow('tool add was called in the first 1 turn')
  const before = log.count('call')
  expect(await fork(kept, true, 'reused')).toMatchObject([{ outcome: 'completed', reward: 1, turns: 3, toolCalls: 3 }])
  // Only the call that the fork made itself, and those of its environment.
  expect(log.count('call')).toBe(before + 4)
  const shared = environmentWith({ ...misbehaving(log.mode), sharing: 'shared' })
  expect(await fork(shared, false, 'shared')).toMatchObject([{ outcome: 'completed', reward: 1 }])
})

test.each([
  ['goes on', 0],
  ['was ahead in the first launch', 3_600_000],
])(
  'an interrupted rollout is replayed with the server answers of its last launch; the clock %s',
  async (_how, aheadMs) => {
    await using runs = await temporaryRuns()
    using log = new ServerLog()
    const launch = { isFirst: true }
    const environment = defineEnvironment({
      name: 'counted',
      task: z.object({}),
      tasks: () => [{}],
      setup: async ({ servers, signal }) => {
        const count = async (args: Record<string, unknown>): Promise<string> =>
          String((await servers.call('counts', { tool: 'counter', arguments: args, signal })).content)
        // So that the question that both ask has another answer in the first.
        if (launch.isFirst) await count({ isFirst: true })
        return await count({})
      },
      prompt: () => 'How many?',
      mcpServers: { counts: misbehaving(log.mode) },
      reward: ({ state, note }) => {
        note('counted', state)
        return 1
      },
    })
    const stop = new AbortController()
    const cutOff = ({ signal }: { signal: AbortSignal }): Promise<string> => {
      stop.abort()
      return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
    }
    const clock = Date.now
    const ahead = vi.spyOn(Date, 'now').mockImplementation(() => clock() + aheadMs)
    onTestFinished(() => ahead.mockRestore())
    await storeRun(runs.root, { environment, script: cutOff, signal: stop.signal })
    ahead.mockRestore()
    launch.isFirst = false
    await storeRun(runs.root, { environment, script: () => 'Many.' })
    using reader = openRun(runs.root)
    expect(reader.rollout('0-0')).toMatchObject({ attempt: 1, info: { counted: '1' } })
    expect(await Array.fromAsync(replayRun(reader, { environment }))).toMatchObject([{ verdict: 'identical' }])
  },
)
