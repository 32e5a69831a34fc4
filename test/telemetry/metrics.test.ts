import { Worker } from 'node:worker_threads'
import { defineEnvironment, evaluate, MillraceError, z } from 'millrace'
import { calls, runScripted, ScriptedBackend, temporaryRuns, type Script } from 'millrace/testing'
import { expect, test } from 'vitest'
import { activeResources, leftSince } from '../support/kit/active-resources.ts'
import { laterTurns, type ModelStatus } from '../../src/inference/index.ts'
import { LoopLag } from '../../src/kit/index.ts'
import { metricFamilies, startTelemetry, type MetricsDelta, type MetricsSources } from '../../src/telemetry/index.ts'
import { toolCalls, toolServerEvents } from '../../src/tools/index.ts'
import { answer, household } from '../support/telemetry/parent-and-child-environment.ts'
import { parseMetrics, sumOf } from '../support/telemetry/parse-metrics.ts'

const calm = { p99Ms: 1, maxMs: 3, meanMs: 0.5, utilization: 0.25 }

const backends: NonNullable<ModelStatus['backends']> = [
  { name: 'a', inFlight: 2, contextTokens: 900, sessions: 7, weight: 0.5, affinityBreaks: 3, kvUsage: 0.25, queued: 4 },
  { name: 'b', inFlight: 0, contextTokens: 0, sessions: 6, weight: 1, affinityBreaks: 0 },
]

/** A source for every gauge. */
const sources: MetricsSources = {
  rollouts: () => ({ running: 3, waiting: 4 }),
  models: () => [{ name: 'm', limit: 8, inFlight: 2, waiting: 1, parked: 5, calls: 0, tries: 0, backends }],
  workers: () => [
    { id: 0, kind: 'thread', state: 'ready', running: 3, lag: calm, memoryBytes: 1e6, restarts: 2 },
    { id: 1, kind: 'process', state: 'silent', running: 0, lag: calm, memoryBytes: 2e6, restarts: 0 },
  ],
  servers: () => [{ server: 'search', waiting: 6 }],
  journal: () => ({ pressure: 0.125, commits: 17, entries: 90, commitMs: 34, slowestCommitMs: 5 }),
  pools: () => [
    { name: 'decode', threads: 2, queued: 1, waitP99Ms: 4, waitMaxMs: 9 },
    { name: 'decode', threads: 1, queued: 0, waitP99Ms: 6, waitMaxMs: 7 },
  ],
  serve: () => ({ requests: 5, rollouts: 50, replyP99Ms: 12 }),
  gateway: () => ({
    openSessions: 2,
    awaitedBackends: 1,
    backends: [
      { id: 'one', state: 'paused', version: '7' },
      { id: 'two', state: 'serving', version: null },
    ],
    connections: 7,
    maxConnections: 9,
    turnedAway: 1,
    dropped: 0,
    bodyBytes: 1e6,
  }),
}

test('the metrics agree with the summary of the run', async () => {
  const before = activeResources()
  {
    using lag = new LoopLag()
    await using telemetry = startTelemetry({ env: {}, run: 'r', metrics: true })
    const hub = telemetry.metrics({ ...sources, loops: () => ({ front: lag.snapshot() }) })
    let isFirst = true
    const backend = new ScriptedBackend(({ messages, sessionId }) => {
      if (sessionId === '1-1') throw new Error('never answers')
      if (isFirst) {
        isFirst = false
        throw new Error('answers the second time')
      }
      return answer(messages)
    })
    await using runs = await temporaryRuns()
    const evaluation = evaluate({
      environment: household,
      model: { name: 'scripted', maxTries: 2, backends: [{ url: 'http://scripted.invalid' }] },
      backends: { scripted: [backend] },
      attempts: 2,
      retries: 1,
      preflight: false,
      run: { root: runs.root },
    })
    for await (const record of evaluation) hub.rolloutSettled(record)
    const summary = await evaluation.summary()
    expect(summary.outcomes).toMatchObject({ completed: 3, model_error: 1 })

    const metrics = parseMetrics(await hub.text())
    for (const [outcome, count] of Object.entries(summary.outcomes)) {
      expect(sumOf(metrics, 'millrace_rollouts_total', { environment: 'household', outcome })).toBe(count)
    }
    // Two failed attempts at the one that never ended well, three good ones and their children.
    expect(sumOf(metrics, 'millrace_attempts_total', { kind: 'rollout', outcome: 'model_error' })).toBe(2)
    expect(sumOf(metrics, 'millrace_attempts_total', { kind: 'rollout', outcome: 'completed' })).toBe(3)
    expect(sumOf(metrics, 'millrace_attempts_total', { kind: 'child' })).toBe(3)
    expect(sumOf(metrics, 'millrace_attempt_duration_seconds_count')).toBe(5)
    expect(sumOf(metrics, 'millrace_reward_duration_seconds_count')).toBe(3)
    const { tries, usage } = summary
    expect(sumOf(metrics, 'millrace_model_calls_total', { model: 'scripted' })).toBe(tries.calls)
    expect(sumOf(metrics, 'millrace_model_calls_total', { status: 'failed' })).toBe(2)
    expect(sumOf(metrics, 'millrace_model_tries_total')).toBe(tries.tries)
    expect(sumOf(metrics, 'millrace_model_failed_tries_total', { cause: 'model_server_error' })).toBe(5)
    expect(sumOf(metrics, 'millrace_model_tokens_total', { type: 'input' })).toBe(usage.input)
    expect(sumOf(metrics, 'millrace_model_tokens_total', { type: 'output' })).toBe(usage.output)
    expect(sumOf(metrics, 'millrace_model_call_duration_seconds_count')).toBe(usage.calls)
    expect(sumOf(metrics, 'millrace_tool_calls_total', { tool: 'note', status: 'ok' })).toBe(6)
    expect(sumOf(metrics, 'millrace_tool_calls_total', { tool: 'fail', status: 'failed' })).toBe(3)
    expect(sumOf(metrics, 'millrace_tool_calls_total', { tool: 'other', status: 'unknown_tool' })).toBe(3)
    expect(sumOf(metrics, 'millrace_tool_call_duration_seconds_count')).toBe(15)
  }
  expect(await leftSince(before)).toEqual([])
})

test('an aborted tool call and one that ends its attempt have their own status', async () => {
  const stop = new AbortController()
  const mishaps = (...names: ('hang' | 'break' | 'snap')[]) =>
    defineEnvironment({
      name: 'mishaps',
      task: z.object({ tool: z.string() }),
      tasks: () => names.map((tool) => ({ tool })),
      prompt: ({ task }) => task.tool,
      tools: {
        hang: {
          parameters: z.object({}),
          // Cut off once it runs, however long it took to get here.
          run: () => new Promise(() => setImmediate(() => stop.abort())),
        },
        break: { parameters: z.object({}), run: () => Promise.reject(new MillraceError('tool_infra', 'gone')) },
        snap: {
          parameters: z.object({}),
          run: () => {
            throw new MillraceError('tool_infra', 'gone at once')
          },
        },
      },
      reward: () => 1,
    })
  const script: Script = ({ messages }) => calls({ [String(messages[0]?.content)]: {} })
  await using telemetry = startTelemetry({ env: {}, run: 'r', metrics: true })
  const broken = await runScripted({ environment: mishaps('break', 'snap'), retries: 0, script })
  expect(broken.records.map(({ outcome }) => outcome)).toEqual(['tool_infra_error', 'tool_infra_error'])
  const stopped = await runScripted({ environment: mishaps('hang'), signal: stop.signal, script })
  expect(stopped.summary.end).toBe('stopped')
  const metrics = parseMetrics(await telemetry.metrics({}).text())
  expect(sumOf(metrics, 'millrace_tool_calls_total', { tool: 'hang', status: 'stopped' })).toBe(1)
  expect(sumOf(metrics, 'millrace_tool_calls_total', { tool: 'break', status: 'ended_attempt' })).toBe(1)
  expect(sumOf(metrics, 'millrace_tool_calls_total', { tool: 'snap', status: 'ended_attempt' })).toBe(1)
})

test('gauges are read when the metrics are requested', async () => {
  await using telemetry = startTelemetry({ env: {}, run: 'r', metrics: true })
  let lost = 0
  const hub = telemetry.metrics({ ...sources, rollouts: () => ({ running: (lost += 1), waiting: 0 }) })
  hub.rolloutLost({ disposition: 'poisoned' })
  await hub.text()
  const metrics = parseMetrics(await hub.text())
  expect(sumOf(metrics, 'millrace_rollouts_running')).toBe(2)
  expect(sumOf(metrics, 'millrace_rollouts_lost_total', { verdict: 'poisoned' })).toBe(1)
  expect(sumOf(metrics, 'millrace_model_requests_parked', { model: 'm' })).toBe(5)
  expect(sumOf(metrics, 'millrace_backend_sessions', { model: 'm' })).toBe(13)
  expect(sumOf(metrics, 'millrace_backend_affinity_breaks_total', { model: 'm', backend: 'a' })).toBe(3)
  expect(sumOf(metrics, 'millrace_backend_weight_ratio', { model: 'm', backend: 'a' })).toBe(0.5)
  expect(sumOf(metrics, 'millrace_tool_server_rollouts_waiting', { server: 'search' })).toBe(6)
  expect(sumOf(metrics, 'millrace_worker_state', { worker: '1', state: 'silent' })).toBe(1)
  expect(sumOf(metrics, 'millrace_worker_state', { worker: '1' })).toBe(1)
  expect(sumOf(metrics, 'millrace_worker_restarts_total', { worker: '0' })).toBe(2)
  expect(sumOf(metrics, 'millrace_loop_lag_max_seconds', { loop: 'worker-0' })).toBe(0.003)
  expect(sumOf(metrics, 'millrace_journal_commits_total')).toBe(17)
  expect(sumOf(metrics, 'millrace_journal_commit_seconds_total')).toBe(0.034)
  // Two pools of one name: their threads add up, the longer wait stands.
  expect(sumOf(metrics, 'millrace_offload_threads', { pool: 'decode' })).toBe(3)
  expect(sumOf(metrics, 'millrace_offload_wait_p99_seconds', { pool: 'decode' })).toBe(0.006)
  expect(sumOf(metrics, 'millrace_offload_wait_max_seconds', { pool: 'decode' })).toBe(0.009)
  expect(sumOf(metrics, 'millrace_serve_rollouts_total')).toBe(50)
  expect(sumOf(metrics, 'process_resident_memory_bytes')).toBeGreaterThan(0)
})

test('metrics of a worker thread arrive as deltas and add up', async () => {
  await using telemetry = startTelemetry({ env: {}, run: 'r', metrics: true })
  const hub = telemetry.metrics({})
  const worker = new Worker(new URL('../support/telemetry/counting-thread.ts', import.meta.url))
  const pieces: (MetricsDelta | undefined)[] = []
  worker.on('message', (delta: MetricsDelta | undefined) => pieces.push(delta))
  await new Promise((resolve, reject) => {
    worker.once('exit', resolve)
    worker.once('error', reject)
  })
  for (const piece of pieces) if (piece) telemetry.merge(piece)
  // The last one had nothing to say.
  expect(pieces.map((piece) => piece !== undefined)).toEqual([true, true, false])
  const metrics = parseMetrics(await hub.text())
  // Two runs of two rollouts, each with a child.
  expect(sumOf(metrics, 'millrace_attempts_total')).toBe(8)
  expect(sumOf(metrics, 'millrace_model_calls_total', { status: 'complete' })).toBe(16)
  expect(sumOf(metrics, 'millrace_tool_call_duration_seconds_count', { tool: 'note' })).toBe(8)
})

test('label values beyond the limit are counted as other, and special characters are escaped', async () => {
  await using telemetry = startTelemetry({ env: {}, run: 'r', metrics: true })
  const hub = telemetry.metrics({})
  const call = (tool: string): void =>
    toolCalls.publish({ trace: undefined, tool, callId: 'c', status: 'ok', startedAt: 0, ms: 1 })
  call('a "quoted" \\ name\nin two lines')
  for (let index = 0; index < 1000; index += 1) call(`tool_${index}`)
  const metrics = parseMetrics(await hub.text())
  const samples = metrics.get('millrace_tool_calls_total')?.samples ?? []
  expect(samples).toHaveLength(65)
  expect(samples[0]?.labels['tool']).toBe('a "quoted" \\ name\nin two lines')
  expect(sumOf(metrics, 'millrace_tool_calls_total', { tool: 'other' })).toBe(1000 - 63)
  expect(sumOf(metrics, 'millrace_tool_calls_total')).toBe(1001)
})

test('every metric can occur', async () => {
  await using telemetry = startTelemetry({
    env: { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9' },
    run: 'r',
    metrics: true,
  })
  const hub = telemetry.metrics(sources)
  hub.rolloutLost({ disposition: 'again' })
  telemetry.merge([{ family: 'spansExported', labels: [], values: [1] }])
  let isFirst = true
  const { records } = await runScripted({
    environment: household,
    maxTries: 2,
    script: ({ messages }) => {
      if (!isFirst) return answer(messages)
      isFirst = false
      throw new Error('answers the second time')
    },
  })
  for (const record of records) hub.rolloutSettled(record)
  toolServerEvents.publish({ name: 'mcp.open', server: 'search', ok: true, ms: 12 })
  laterTurns.publish({ model: 'm', driftedTokens: 3 })
  const ofGateways = [
    'gatewaySessionsStarted',
    'gatewaySessionsEnded',
    'gatewayAlarms',
    'gatewayFleetAlarms',
    'gatewayRequests',
    'gatewaySeconds',
    'gatewayFirstTokenSeconds',
    'gatewaySamples',
    'gatewayLaterTurns',
  ] as const
  for (const family of ofGateways) telemetry.registry.series(family).add()
  await telemetry.close()
  const present = parseMetrics(await hub.text())
  expect([...present.keys()]).toEqual(Object.values(metricFamilies).map(({ name }) => name))
})
