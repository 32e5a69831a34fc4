import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import {
  defineEnvironment,
  evaluate,
  type EvaluateOptions,
  type Message,
  type MessageNode,
  RunReader,
  z,
} from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { commonLength } from '../../src/kit/index.ts'
import { SimulatorServer } from '../../src/simulator/index.ts'
import { startTelemetry } from '../../src/telemetry/index.ts'
import { fixture, millrace, reportedIds, startMillrace } from '../support/cli/millrace-process.ts'
import { parseMetrics, sumOf } from '../support/telemetry/parse-metrics.ts'

interface Drift {
  laterTurns: number
  driftedTurns: number
  driftedTokens: number
}

/** The drift of linear conversations, counted token by token. */
function driftOf(conversations: readonly (readonly MessageNode[])[]): Drift {
  const drift = { laterTurns: 0, driftedTurns: 0, driftedTokens: 0 }
  for (const nodes of conversations) {
    const replies = nodes.flatMap(({ tokens }) => tokens ?? [])
    for (const [index, { promptIds = [] }] of replies.slice(1).entries()) {
      const earlier = [...(replies[index]?.promptIds ?? []), ...(replies[index]?.ids ?? [])]
      const lost = earlier.length - commonLength(earlier, Array.from(promptIds))
      drift.laterTurns += 1
      drift.driftedTurns += lost > 0 ? 1 : 0
      drift.driftedTokens += lost
    }
  }
  return drift
}

/** What the records of a run say, beside what its nodes say. */
function countsOf(folder: string): { readonly counted: Drift; readonly stored: Drift } {
  using reader = RunReader.open(folder)
  const counted = { laterTurns: 0, driftedTurns: 0, driftedTokens: 0 }
  const conversations: MessageNode[][] = []
  for (const { rollout, attempt, record } of reader.ended()) {
    for (const name of ['laterTurns', 'driftedTurns', 'driftedTokens'] as const)
      counted[name] += record.usage[name] ?? 0
    const children = reader.children(rollout).filter((child) => child.attempt === attempt)
    for (const id of [rollout, ...children.map((child) => child.rollout)]) conversations.push(reader.nodes(id, attempt))
  }
  return { counted, stored: driftOf(conversations) }
}

/** The simulator's samples are other tokens than their text, and its template leaves reasoning out. */
function exactOver(simulator: SimulatorServer): NonNullable<EvaluateOptions['models']> {
  return { policy: { backends: [{ url: simulator.url }], upstreamName: 'sim', tokens: 'exact' } }
}

/** The reasoning of earlier turns is left out, so that each later prompt begins with other tokens. */
function over(simulator: SimulatorServer, sendReasoning: boolean): NonNullable<EvaluateOptions['models']> {
  return { policy: { backends: [{ url: simulator.url }], upstreamName: 'sim', sendReasoning } }
}

test.each([
  { workers: undefined, sendReasoning: false, drifted: 16 },
  { workers: 2, sendReasoning: false, drifted: 16 },
  { workers: undefined, sendReasoning: true, drifted: 0 },
])(
  'rollouts and their children count drift: workers $workers, reasoning $sendReasoning',
  async ({ workers, sendReasoning, drifted }) => {
    await using runs = await temporaryRuns()
    await using simulator = await SimulatorServer.start({ reasoning: true })
    const evaluation = evaluate({
      environment: fixture('drifting.ts'),
      model: 'policy',
      models: over(simulator, sendReasoning),
      captureTokens: true,
      ...(workers && { workers }),
      run: { root: runs.root, name: 'drift' },
    })
    const { usage } = await evaluation.summary()
    const { counted, stored } = countsOf(join(runs.root, 'drift'))
    expect(counted).toEqual(stored)
    expect(counted).toMatchObject({ laterTurns: 16, driftedTurns: drifted })
    expect(usage).toMatchObject({ captured: 24, laterTurns: 16, ...(drifted > 0 && counted) })
    if (drifted === 0) expect(usage).not.toHaveProperty('driftedTurns')
  },
)

test.each([undefined, 2])(
  'with exact tokens, rollouts and their children do not drift: workers %s',
  async (workers) => {
    await using runs = await temporaryRuns()
    await using simulator = await SimulatorServer.start({ reasoning: true, tokens: 'lossy' })
    const evaluation = evaluate({
      environment: fixture('drifting.ts'),
      model: 'policy',
      models: exactOver(simulator),
      ...(workers && { workers }),
      run: { root: runs.root, name: 'drift' },
    })
    const { usage } = await evaluation.summary()
    const { counted, stored } = countsOf(join(runs.root, 'drift'))
    expect(counted).toEqual(stored)
    expect(counted).toEqual({ laterTurns: 16, driftedTurns: 0, driftedTokens: 0 })
    expect(usage).toMatchObject({ captured: 24, laterTurns: 16 })
  },
)

test('without tokens nothing is counted', async () => {
  await using runs = await temporaryRuns()
  const evaluation = evaluate({ environment: fixture('drifting.ts'), model: 'sim', run: { root: runs.root } })
  const { usage } = await evaluation.summary()
  expect(Object.keys(usage)).toEqual(['calls', 'input', 'cachedInput', 'output', 'reasoning'])
})

test('a context that a policy made anew is a new conversation', async () => {
  await using runs = await temporaryRuns()
  const environment = defineEnvironment({
    name: 'compacting',
    task: z.object({}),
    tasks: () => [{}],
    prompt: () => 'Go.',
    // The second and third turn go on from each other, after notes in place of the first.
    contextPolicy: ({ messages, memory }) => {
      if (messages.length < 3) return messages
      const notes = (memory.get('notes') as Message | undefined) ?? { role: 'user', content: 'My notes.' }
      memory.set('notes', notes)
      return [notes, ...messages.slice(2)]
    },
    update: ({ messages }) =>
      messages.length < 6 ? { messages: [{ role: 'user', content: 'And then?' }] } : { end: true },
    reward: () => 1,
  })
  const evaluation = evaluate({ environment, model: 'sim', captureTokens: true, run: { root: runs.root } })
  const { usage } = await evaluation.summary()
  expect(usage).toMatchObject({ calls: 3, captured: 3, laterTurns: 1 })
  expect(usage).not.toHaveProperty('driftedTurns')
})

test('metrics count the drift of rollouts', async () => {
  await using telemetry = startTelemetry({ env: {}, run: 'drift', metrics: true })
  await using runs = await temporaryRuns()
  await using simulator = await SimulatorServer.start({ reasoning: true })
  const models = over(simulator, false)
  const options = { environment: fixture('drifting.ts'), model: 'policy', models, captureTokens: true }
  const { usage } = await evaluate({ ...options, run: { root: runs.root } }).summary()
  const metrics = parseMetrics(await telemetry.metrics({}).text())
  expect(sumOf(metrics, 'millrace_later_turns_total', { model: 'policy', tokens: 'drifted' })).toBe(usage.driftedTurns)
  expect(sumOf(metrics, 'millrace_later_turns_total', { tokens: 'exact' })).toBe(0)
  expect(sumOf(metrics, 'millrace_drifted_tokens_total', { model: 'policy' })).toBe(usage.driftedTokens)
})

/** Kills a run of 24 rollouts three times in the middle, and runs it to its end. */
async function killedRun(root: string, models: NonNullable<EvaluateOptions['models']>): Promise<void> {
  const file = join(root, 'models.json')
  await writeFile(file, JSON.stringify(models))
  const words = [
    'eval',
    fixture('drifting.ts'),
    '--env.count=24',
    '-m',
    'policy',
    '--models',
    file,
    '--tokens',
    '-c',
    '6',
  ]
  const launch = [...words, '--runs', root, '--run', 'killed', '--no-preflight', '--json']
  for (let kill = 0; kill < 3; kill += 1) {
    await using running = startMillrace({ cwd: root }, ...launch)
    await running.shows('stdout', '"type":"rollout"', 3)
    running.process.kill('SIGKILL')
    await running.ended
  }
  const { code, stdout, stderr } = await millrace({ cwd: root }, ...launch)
  expect(code, stderr).toBe(0)
  expect(reportedIds(stdout).length).toBeLessThan(24)
}

test('with exact tokens, rollouts that were killed go on from the tokens in their journals', async () => {
  await using runs = await temporaryRuns()
  await using simulator = await SimulatorServer.start({ reasoning: true, ttftMs: 4, tokens: 'lossy' })
  await killedRun(runs.root, exactOver(simulator))
  const { counted, stored } = countsOf(join(runs.root, 'killed'))
  expect(counted).toEqual(stored)
  expect(counted).toEqual({ laterTurns: 96, driftedTurns: 0, driftedTokens: 0 })
})

test('a run that is killed again and again counts each drifted turn once, and shows them', async () => {
  await using runs = await temporaryRuns()
  await using simulator = await SimulatorServer.start({ reasoning: true, ttftMs: 4 })
  await killedRun(runs.root, over(simulator, false))
  const { counted, stored } = countsOf(join(runs.root, 'killed'))
  expect(counted).toEqual(stored)
  expect(counted).toMatchObject({ laterTurns: 96, driftedTurns: 96 })
  const shown = await millrace({ cwd: runs.root }, 'show', 'killed', '--runs', runs.root)
  expect(shown.stdout).toMatch(/drift +96 of 96 later turns · \S+ tokens affected/)
  expect(shown.stdout).toContain('--exact-tokens')
  const rollout = await millrace({ cwd: runs.root }, 'show', 'killed', '0-0', '--runs', runs.root)
  expect(rollout.stdout).toMatch(/\d+ earlier tokens drifted/)
})
