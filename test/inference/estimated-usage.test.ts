import { defineEnvironment, evaluate, z, type EvaluateOptions } from 'millrace'
import { ScriptedBackend, temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { startTelemetry } from '../../src/telemetry/index.ts'
import { Collector } from '../support/telemetry/collector.ts'
import { parseMetrics, sumOf } from '../support/telemetry/parse-metrics.ts'

/** Ten tokens, as far as can be told. */
const answer = 'x'.repeat(40)

const environment = defineEnvironment({
  name: 'no-usage',
  task: z.object({ row: z.number() }),
  tasks: () => [{ row: 0 }, { row: 1 }, { row: 2 }],
  prompt: ({ task }) => `row ${task.row}`,
  update: () => ({ messages: [{ role: 'user', content: 'go on' }] }),
  reward: async ({ judge }) => {
    await judge({ messages: [{ role: 'user', content: 'is it good?' }] })
    return 1
  },
  limits: { maxTurns: 9 },
})

/** Over a server that never says what its replies used. A token of output costs a dollar. */
async function run(root: string, options: Partial<EvaluateOptions>) {
  const usage = { calls: 1, input: 0, cachedInput: 0, output: 0, reasoning: 0 }
  const evaluation = evaluate({
    environment,
    model: {
      name: 'terse',
      backends: [{ url: 'http://terse.invalid' }],
      price: { input: 0, output: 1_000_000 },
    },
    backends: {
      terse: [
        new ScriptedBackend(() => ({ message: { role: 'assistant', content: answer }, finishReason: 'stop', usage })),
      ],
    },
    concurrency: 1,
    preflight: false,
    run: { root },
    ...options,
  })
  const records = await Array.fromAsync(evaluation)
  return { records, summary: await evaluation.summary(), info: await evaluation.started }
}

test('usage is estimated and marked as estimated if the server does not report it', async () => {
  await using runs = await temporaryRuns()
  const { records, summary } = await run(runs.root, { limits: { maxTokens: 25 } })
  expect(records[0]).toMatchObject({
    outcome: 'max_tokens',
    turns: 3,
    usage: { calls: 3, output: 30, estimated: 3 },
    judgeUsage: { calls: 1, output: 10, estimated: 1 },
    cost: 40,
  })
  expect(records[0]?.usage.input).toBeGreaterThan(0)
  expect(summary).toMatchObject({ usage: { calls: 9, output: 90, estimated: 9 }, cost: 120 })
  expect(summary.usage).not.toHaveProperty('captured')
})

test('a run with --tokens counts the replies with tokens, and warns at the start if there are none', async () => {
  await using runs = await temporaryRuns()
  const limits = { maxTurns: 2 }
  const bare = await run(runs.root, { limits, captureTokens: true, preflight: true })
  expect(bare.info.notices).toContainEqual(expect.stringMatching(/^--tokens .* the first reply of terse came without/))
  expect(bare.summary).toMatchObject({ usage: { calls: 6, captured: 0 } })
  const full = await run(runs.root, { limits, captureTokens: true, model: 'sim', backends: {} })
  expect(full.info.notices).toEqual([])
  expect(full.summary).toMatchObject({ usage: { calls: 6, captured: 6 } })
  expect(full.records[0]).toMatchObject({ usage: { calls: 2, captured: 2 } })
})

test('metrics and spans count estimated usage', async () => {
  await using collector = await Collector.start()
  await using telemetry = startTelemetry({
    env: { OTEL_EXPORTER_OTLP_ENDPOINT: collector.server.origin },
    run: 'no-usage',
    metrics: true,
  })
  await using runs = await temporaryRuns()
  const { summary } = await run(runs.root, { limits: { maxTurns: 2 } })
  const metrics = parseMetrics(await telemetry.metrics({}).text())
  await telemetry.close()
  const { usage, judgeUsage } = summary
  for (const type of ['input', 'output'] as const) {
    const count = usage[type] + judgeUsage[type]
    expect(count).toBeGreaterThan(0)
    expect(sumOf(metrics, 'millrace_model_tokens_total', { type })).toBe(count)
    const chats = collector.spans.filter(({ name }) => name === 'chat terse')
    const told = chats.map(({ attributes }) => Number(attributes[`gen_ai.usage.${type}_tokens`]))
    expect(told.reduce((sum, each) => sum + each, 0)).toBe(count)
  }
})

test('the cost limit of a run counts estimated usage', async () => {
  await using runs = await temporaryRuns()
  const { summary } = await run(runs.root, { limits: { maxTurns: 1 }, maxCostUsd: 30 })
  expect(summary).toMatchObject({ end: 'max_cost', rollouts: 2, cost: 40 })
})
