import { defineEnvironment, evaluate, z, type Message } from 'millrace'
import { calls, runScripted, ScriptedBackend, temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { RunReader } from '../../src/store/index.ts'
import longTask from '../fixtures/long-task.ts'
import { misbehaving, ServerLog } from '../fixtures/mcp/misbehaving.ts'
import { nextMove } from '../support/tools/long-task-model.ts'
import { expectOneRecordEach, maxTurns } from '../support/tools/long-task-run.ts'
import { callsNoted, notedCalls, timesMade } from '../support/tools/noted-calls.ts'
import { isRunning, liveDescendants } from '../support/tools/processes.ts'
import { seeded } from '../support/tools/seeded.ts'

const count = 4
const model = { name: 'counting', backends: [{ url: 'http://scripted.invalid' }] }

function start(log: ServerLog, root: string, retries: number) {
  return evaluate({
    environment: longTask,
    options: { log: log.path, count },
    model,
    backends: { counting: [new ScriptedBackend(({ messages }) => nextMove(messages))] },
    limits: { maxTurns },
    retries,
    preflight: false,
    run: { root, name: 'crashed' },
  })
}

test('repeated kills of servers cost attempts but no rollouts, and only safe calls are repeated', () =>
  seeded(async (random) => {
    await using runs = await temporaryRuns()
    using log = new ServerLog()
    const kills = 12
    // A kill ends at most one attempt of each rollout.
    const evaluation = start(log, runs.root, kills)
    const summary = evaluation.summary()
    const isOver = (): boolean => evaluation.progress().state === 'ended'
    for (let kill = 0; kill < kills; kill += 1) {
      await callsNoted(log.path, notedCalls(log.path).length + 1 + random(100), isOver)
      const running = log.entries('start').filter(({ pid }) => isRunning(pid))
      const victim = running[random(running.length)]
      if (victim) process.kill(victim.pid, 'SIGKILL')
    }
    const { folder } = await summary
    expect(liveDescendants()).toEqual([])
    const records = expectOneRecordEach(folder, count)
    expect(records.map(({ outcome, reward }) => [outcome, reward])).toEqual(records.map(() => ['completed', 1]))

    const made = notedCalls(log.path)
    const times = timesMade(made)
    for (const { tool, key } of made) {
      const mayRepeat = tool === 'echo_read_only' || tool === 'echo_idempotent'
      expect(times.get(key), `${tool} ${key}`).toBeLessThanOrEqual(mayRepeat ? 2 : 1)
    }
    using reader = RunReader.open(folder)
    const earlier = records.flatMap(({ id, attempt }) => reader.attempts(id).filter((one) => one.attempt < attempt))
    expect(earlier.map(({ end }) => [end?.outcome, end?.record.reward])).toEqual(
      earlier.map(() => ['tool_infra_error', null]),
    )
    // Each time all rollouts went over to the same new connection.
    const reconnects = Array.from(reader.events('mcp.reconnect'), ({ data }) => data as Record<string, unknown>)
    const generations = reconnects.filter(({ server, ok }) => server === 'words' && ok).map((one) => one['generation'])
    expect(generations.length).toBeGreaterThan(0)
    expect(generations).toEqual(generations.map((_, index) => index + 2))
  }))

test('a rollout whose own server is killed has no reward, and concurrent rollouts have theirs', () =>
  seeded(async (random) => {
    await using runs = await temporaryRuns()
    using log = new ServerLog()
    const evaluation = start(log, runs.root, 0)
    const summary = evaluation.summary()
    const counted = () => notedCalls(log.path).filter(({ tool, key }) => tool === 'counter' && key.startsWith('1.'))
    // It counts once in each of its own turns; the last of these comes after its sub-agents.
    const until = 1 + random(7)
    await expect.poll(() => counted().length, { interval: 2 }).toBeGreaterThanOrEqual(until)
    const [call] = counted()
    if (call) process.kill(call.pid, 'SIGKILL')
    await summary
    expect(liveDescendants()).toEqual([])
    const records = expectOneRecordEach((await summary).folder, count)
    expect(records.map(({ outcome, reward }) => [outcome, reward])).toEqual([
      ['completed', 1],
      ['tool_infra_error', null],
      ['completed', 1],
      ['completed', 1],
    ])
    expect(records[1]?.error?.data).toMatchObject({ server: 'memory', tool: 'counter' })
  }))

test('a sub-agent that loses its server ends its parent', async () => {
  using log = new ServerLog()
  const environment = defineEnvironment({
    name: 'helped',
    task: z.object({}),
    tasks: () => [{}],
    prompt: () => 'Ask two helpers.',
    mcpServers: { words: { ...misbehaving(log.mode, 'crash-mid-call=2'), sharing: 'shared' } },
    tools: {
      delegate: {
        parameters: z.object({}),
        run: async (_, { child }) => (await child({ prompt: 'Help.', tools: ['echo'] })).answer,
      },
    },
    reward: () => 1,
  })
  const script = ({ messages }: { messages: readonly Message[] }) => {
    if (messages[0]?.content === 'Help.') return calls({ echo: { message: 'hello' } })
    return messages.length === 1 ? calls({ delegate: {} }) : 'They did not help.'
  }
  const { records } = await runScripted({ environment, script, retries: 1 })
  expect(records[0]).toMatchObject({ outcome: 'tool_infra_error', reward: null, attempt: 2 })
  expect(records[0]?.error?.data).toMatchObject({ server: 'words', tool: 'echo', mayHaveRun: true, exitCode: 7 })
  expect(liveDescendants()).toEqual([])
})
