import { defineEnvironment, evaluate, z, type Environment, type Message, type ServerConfig } from 'millrace'
import { calls, runScripted, ScriptedBackend, temporaryRuns } from 'millrace/testing'
import { expect, test, vi } from 'vitest'
import { RunReader } from '../../src/store/index.ts'
import { misbehaving, ServerLog } from '../fixtures/mcp/misbehaving.ts'
import { liveDescendants } from '../support/tools/processes.ts'

function environmentWith(mcpServers: Readonly<Record<string, ServerConfig>>): Environment {
  return defineEnvironment({
    name: 'with-servers',
    task: z.object({ n: z.number() }),
    tasks: () => Array.from({ length: 8 }, (_, n) => ({ n })),
    prompt: ({ task }) => `Add 1 to ${task.n}.`,
    mcpServers,
    reward: async ({ task, answer, servers, signal }) => {
      const asked = await servers.call('sums', { tool: 'add', arguments: { a: task.n, b: 1 }, signal })
      return Number(asked.content === answer)
    },
  })
}

const script = ({ messages }: { messages: readonly Message[] }) => {
  const last = messages.at(-1)
  if (last?.role === 'tool') return String(last.content)
  const n = Number(/\d+ to (\d+)/.exec(String(messages[0]?.content))?.[1])
  return calls({ add: { a: n, b: 1 } })
}

test('rollouts share a stateless server: one start, one list, and no process left', async () => {
  using log = new ServerLog()
  const sums = { ...misbehaving(log.mode), sharing: 'shared' as const }
  const { records } = await runScripted({ environment: environmentWith({ sums }), script })
  expect(records.map(({ outcome, reward }) => [outcome, reward])).toEqual(records.map(() => ['completed', 1]))
  expect(log.count('start')).toBe(1)
  expect(log.count('list')).toBe(1)
  expect(log.count('call')).toBe(16)
  expect(liveDescendants()).toEqual([])
})

test('rollouts have their own process of a server with state', async () => {
  using log = new ServerLog()
  const { records } = await runScripted({ environment: environmentWith({ sums: misbehaving(log.mode) }), script })
  expect(records.every(({ reward }) => reward === 1)).toBe(true)
  const callers = Map.groupBy(log.entries('call'), ({ pid }) => pid)
  expect([...callers.values()].map((made) => made.length)).toEqual(records.map(() => 2))
  // There are fewer processes ready than rollouts, and to start one takes a while.
  expect(records.some(({ timing }) => timing.waitMs > 0)).toBe(true)
  expect(records.every(({ timing }) => timing.waitMs <= timing.wallMs)).toBe(true)
  expect(liveDescendants()).toEqual([])
})

test('changes of the wall clock affect no duration and end no rollout', async () => {
  using log = new ServerLog()
  await using runs = await temporaryRuns()
  const startMs = performance.now()
  const realNow = Date.now.bind(Date)
  let steps = 0
  const wallClock = vi.spyOn(Date, 'now').mockImplementation(() => {
    steps += 1
    return realNow() + (steps % 2 === 0 ? -1 : 1) * 200 * 86_400_000
  })
  using _wallClock = { [Symbol.dispose]: () => wallClock.mockRestore() }
  const evaluation = evaluate({
    environment: {
      ...environmentWith({ sums: misbehaving(log.mode) }),
      update: async ({ child }) => void (await child({ prompt: 'Add 1 to 1.' })),
    },
    model: { name: 'scripted' },
    backends: { scripted: [new ScriptedBackend(script)] },
    preflight: false,
    run: { root: runs.root, name: 'stepped' },
  })
  const records = await Array.fromAsync(evaluation)
  expect(records.map(({ outcome, reward }) => [outcome, reward])).toEqual(records.map(() => ['completed', 1]))
  using reader = RunReader.open(`${runs.root}/stepped`)
  const children = records.flatMap(({ id }) => reader.children(id)).map(({ end }) => end?.record)
  expect(children.length).toBeGreaterThanOrEqual(records.length)
  const elapsedMs = Math.ceil(performance.now() - startMs)
  for (const record of [...records, ...children]) {
    const { startedAt: _startedAt, ...durations } = record?.timing ?? { startedAt: 0, wallMs: -1 }
    for (const ms of Object.values(durations)) {
      expect(ms).toBeGreaterThanOrEqual(0)
      expect(ms).toBeLessThanOrEqual(elapsedMs)
    }
  }
})

test('a required server that cannot start is an infrastructure failure, and the rollout has no reward', async () => {
  const sums = { ...misbehaving('exit-before-initialize=3'), sharing: 'shared' as const }
  const { records } = await runScripted({ environment: environmentWith({ sums }), script, retries: 0 })
  for (const record of records) {
    expect(record).toMatchObject({ outcome: 'tool_infra_error', reward: null })
    expect(record.error?.message).toContain('sums')
  }
  expect(liveDescendants()).toEqual([])
})

test('a required server that cannot start is found before the run costs anything', async () => {
  const backend = new ScriptedBackend(script)
  await using runs = await temporaryRuns()
  const evaluation = evaluate({
    environment: environmentWith({ sums: misbehaving('exit-before-initialize=3') }),
    model: { name: 'scripted', backends: [{ url: 'http://scripted.invalid' }] },
    backends: { scripted: [backend] },
    run: { root: runs.root },
  })
  await expect(evaluation.summary()).rejects.toMatchObject({
    code: 'tool_infra',
    rawMessage: expect.stringMatching(/; `millrace tools doctor <environment> --server sums` shows more$/),
  })
  expect(evaluation.progress().hasToolServers).toBe(true)
  expect(liveDescendants()).toEqual([])
})

test('a rollout continues without an optional server, and the missing server is recorded', async () => {
  const servers = {
    sums: { ...misbehaving(), sharing: 'shared' as const },
    other: { ...misbehaving('initialize-error'), sharing: 'shared' as const, required: false },
  }
  await using runs = await temporaryRuns()
  const evaluation = evaluate({
    environment: environmentWith(servers),
    model: { name: 'scripted', backends: [{ url: 'http://scripted.invalid' }] },
    backends: { scripted: [new ScriptedBackend(script)] },
    preflight: false,
    run: { root: runs.root },
  })
  const records = await Array.fromAsync(evaluation)
  expect(records.every(({ reward }) => reward === 1)).toBe(true)
  const { folder, missingServers } = await evaluation.summary()
  const [first] = records[0]?.missingServers ?? []
  expect(first).toMatchObject({ server: 'other', cause: expect.stringContaining('other') })
  expect(missingServers).toEqual([{ ...first, rollouts: records.length }])
  using reader = RunReader.open(folder)
  const missing = Array.from(reader.events('mcp.missing'))
  expect(new Set(missing.map(({ rollout }) => rollout))).toEqual(new Set(records.map(({ id }) => id)))
  expect(missing).toHaveLength(records.length)
  expect(missing[0]?.data).toMatchObject({ server: 'other' })
  expect(Array.from(reader.events('mcp.open')).map(({ data }) => data)).toContainEqual(
    expect.objectContaining({ server: 'sums', ok: true }),
  )
})

test('the details of a tool call are stored with its message', async () => {
  const sums = { ...misbehaving(), sharing: 'shared' as const }
  await using runs = await temporaryRuns()
  const evaluation = evaluate({
    environment: environmentWith({ sums }),
    model: { name: 'scripted', backends: [{ url: 'http://scripted.invalid' }] },
    backends: { scripted: [new ScriptedBackend(script)] },
    preflight: false,
    limit: 1,
    run: { root: runs.root },
  })
  await evaluation.summary()
  using reader = RunReader.open((await evaluation.summary()).folder)
  const answered = reader.nodes('0-0', 1).find(({ tool }) => tool)
  expect(answered?.tool).toMatchObject({
    name: 'add',
    status: 'ok',
    detail: { server: 'sums', generation: 1, attempts: 1 },
  })
})
