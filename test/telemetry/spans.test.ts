import { evaluate, type Message } from 'millrace'
import { runScripted, temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { modelCalls, type ModelConfigInput } from '../../src/inference/index.ts'
import { activeResources, leftSince } from '../support/kit/active-resources.ts'
import { chatReply, ScriptedServer, sendJson } from '../support/inference/scripted-server.ts'
import { rolloutEvents, type RolloutStartEvent } from '../../src/rollout/index.ts'
import { schemaUrl, spanAttributes, startTelemetry, traceIdOf } from '../../src/telemetry/index.ts'
import { toolCalls } from '../../src/tools/index.ts'
import { Collector, type ReceivedSpan } from '../support/telemetry/collector.ts'
import { answer, household } from '../support/telemetry/parent-and-child-environment.ts'

/** An inference server that answers by content and remembers the headers it was sent. */
function backend(): Promise<ScriptedServer> {
  return ScriptedServer.start((response, { body }) => {
    const { messages } = JSON.parse(body) as { messages: Message[] }
    const said = answer(messages)
    const message = typeof said === 'string' ? { role: 'assistant', content: said } : said
    const finish = typeof said === 'string' ? 'stop' : 'tool_calls'
    sendJson(response, chatReply('', { choices: [{ index: 0, message, finish_reason: finish }] }))
  })
}

const named = (spans: readonly ReceivedSpan[], name: string): ReceivedSpan[] =>
  spans.filter((span) => span.name === name)

test('a rollout with tools and a child is one trace, and backends get their span as traceparent', async () => {
  const before = activeResources()
  {
    await using collector = await Collector.start()
    await using server = await backend()
    await using runs = await temporaryRuns()
    await using telemetry = startTelemetry({
      env: { OTEL_EXPORTER_OTLP_ENDPOINT: collector.server.origin, OTEL_EXPORTER_OTLP_HEADERS: 'x-team=rl%20lab' },
      run: 'night',
      metrics: false,
    })
    const evaluation = evaluate({
      environment: household,
      model: { name: 'm', stream: false, backends: [{ url: server.url }] },
      sampling: { temperature: 1, maxTokens: 50 },
      limit: 1,
      preflight: false,
      run: { root: runs.root },
    })
    const [record] = await Array.fromAsync(evaluation)
    expect(record).toMatchObject({ outcome: 'completed', children: 1, toolCalls: 5, toolErrors: 2 })
    await telemetry.close()

    const { spans, batches } = collector
    expect(collector.server.requests[0]).toMatchObject({
      method: 'POST',
      path: '/v1/traces',
      headers: { 'content-type': 'application/json', 'x-team': 'rl lab' },
    })
    expect(batches[0]?.resourceSpans[0]?.scopeSpans[0]).toMatchObject({ schemaUrl, scope: { name: 'millrace' } })
    expect(new Set(spans.map(({ traceId }) => traceId))).toEqual(new Set([traceIdOf('night', '0-0', 1)]))
    expect(new Set(spans.map(({ spanId }) => spanId)).size).toBe(spans.length)

    const agents = named(spans, 'invoke_agent household')
    const root = agents.find(({ parentSpanId }) => parentSpanId === undefined)
    const child = agents.find(({ parentSpanId }) => parentSpanId === root?.spanId)
    if (!root || !child) throw new Error('there is no parent, or no child below it')
    const places = spans.map(({ name, parentSpanId }) => `${name} below ${parentSpanId}`)
    expect(places.toSorted()).toEqual(
      [
        ['invoke_agent household', undefined],
        ['invoke_agent household', root.spanId],
        ['chat m', root.spanId],
        ['chat m', root.spanId],
        ['chat m', child.spanId],
        ['chat m', child.spanId],
        ['execute_tool note', root.spanId],
        ['execute_tool fail', root.spanId],
        ['execute_tool delegate', root.spanId],
        ['execute_tool', root.spanId],
        ['execute_tool note', child.spanId],
      ]
        .map(([name, parent]) => `${name} below ${parent}`)
        .toSorted(),
    )
    expect(root.attributes).toMatchObject({
      'gen_ai.operation.name': 'invoke_agent',
      'gen_ai.agent.name': 'household',
      'gen_ai.request.model': 'm',
      'gen_ai.usage.input_tokens': 28,
      'millrace.run': 'night',
      'millrace.rollout': '0-0',
      'millrace.attempt': 1,
      'millrace.sample': 0,
      'millrace.outcome': 'completed',
      'millrace.reward': 0.5,
      'millrace.resumed': false,
    })
    const [chat] = named(spans, 'chat m')
    expect(chat).toMatchObject({ kind: 3, isError: false })
    expect(chat?.attributes).toMatchObject({
      'gen_ai.operation.name': 'chat',
      'gen_ai.request.temperature': 1,
      'gen_ai.request.max_tokens': 50,
      'gen_ai.usage.output_tokens': 3,
      'gen_ai.response.finish_reasons': ['tool_calls'],
      'millrace.tries': 1,
    })
    expect(named(spans, 'execute_tool fail')[0]).toMatchObject({
      isError: true,
      attributes: { 'error.type': 'failed', 'gen_ai.tool.call.id': 'call_1' },
    })
    for (const { start, end, attributes } of spans) {
      expect(start >= root.start && end <= root.end && start <= end).toBe(true)
      for (const name of Object.keys(attributes)) expect(Object.keys(spanAttributes)).toContain(name)
    }
    // Each request carried the very span of its own call.
    const headers = server.requests.map((request) => request.headers['traceparent'])
    const expected = named(spans, 'chat m').map(({ traceId, spanId }) => `00-${traceId}-${spanId}-01`)
    expect(new Set(headers)).toEqual(new Set(expected))
    expect(headers).toHaveLength(expected.length)
    // Nothing that anybody said.
    const sent = collector.server.requests.map(({ body }) => body).join('')
    for (const words of ['secret words', 'Run the house', 'all done', 'out of order', 'invented']) {
      expect(sent).not.toContain(words)
    }
  }
  expect(await leftSince(before)).toEqual([])
})

test('the span of a call names its provider', async () => {
  await using collector = await Collector.start()
  await using server = await backend()
  const models: Record<string, ModelConfigInput> = {
    sglang: { name: 'm', stream: false, backends: [{ url: server.url, engine: 'sglang' }] },
    'millrace.simulator': { name: 'm', simulator: {} },
  }
  for (const [provider, model] of Object.entries(models)) {
    await using runs = await temporaryRuns()
    const env = { OTEL_EXPORTER_OTLP_ENDPOINT: collector.server.origin }
    await using telemetry = startTelemetry({ env, run: provider, metrics: false })
    await Array.fromAsync(
      evaluate({ environment: household, model, limit: 1, preflight: false, run: { root: runs.root } }),
    )
    await telemetry.close()
    const chats = named(collector.spans, 'chat m').filter(({ attributes }) => attributes['millrace.run'] === provider)
    expect(new Set(chats.map(({ attributes }) => attributes['gen_ai.provider.name']))).toEqual(new Set([provider]))
  }
})

test('a call with two tries is one span, and both tries carry its traceparent', async () => {
  await using collector = await Collector.start()
  let isFirst = true
  await using server = await ScriptedServer.start((response) => {
    sendJson(response, isFirst ? { error: { message: 'busy' } } : chatReply('done'), isFirst ? 500 : 200)
    isFirst = false
  })
  await using runs = await temporaryRuns()
  await using telemetry = startTelemetry({
    env: { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: `${collector.server.origin}/custom` },
    run: 'r',
    metrics: false,
  })
  const model = { name: 'm', stream: false, backends: [{ url: server.url }] }
  const options = { environment: household, model, limit: 1, preflight: false, run: { root: runs.root } }
  await evaluate(options).summary()
  await telemetry.close()
  expect(collector.server.requests[0]?.path).toBe('/custom')
  const [chat, ...more] = named(collector.spans, 'chat m')
  expect(more).toEqual([])
  expect(chat?.attributes['millrace.tries']).toBe(2)
  const traceparent = `00-${chat?.traceId}-${chat?.spanId}-01`
  expect(server.requests.map(({ headers }) => headers['traceparent'])).toEqual([traceparent, traceparent])
})

test('the span of a failed rollout has the error code', async () => {
  await using collector = await Collector.start()
  await using telemetry = startTelemetry({
    env: { OTEL_EXPORTER_OTLP_ENDPOINT: `${collector.server.origin}/` },
    run: 'r',
    metrics: false,
  })
  await runScripted({
    environment: household,
    limit: 1,
    script: () => {
      throw new Error('no')
    },
  })
  await telemetry.close()
  const failed = { isError: true, attributes: { 'error.type': 'model_server_error' } }
  expect(named(collector.spans, 'chat scripted')[0]).toMatchObject(failed)
  expect(named(collector.spans, 'invoke_agent household')[0]).toMatchObject({
    ...failed,
    attributes: { 'millrace.outcome': 'model_error' },
  })
})

test.each([
  ['is not there', undefined],
  ['takes the connection and says nothing', () => {}],
  ['refuses everything', (response: Parameters<typeof sendJson>[0]) => sendJson(response, {}, 400)],
  ['fails every time', (response: Parameters<typeof sendJson>[0]) => sendJson(response, {}, 503)],
])('a collector that %s does not affect the run', async (_, handler) => {
  const before = activeResources()
  {
    await using collector = await Collector.start(handler ?? (() => {}))
    const { origin } = collector.server
    if (!handler) await collector[Symbol.asyncDispose]()
    await using telemetry = startTelemetry({ env: { OTEL_EXPORTER_OTLP_ENDPOINT: origin }, run: 'r', metrics: true })
    const { records } = await runScripted({
      environment: household,
      attempts: 4,
      script: ({ messages }) => answer(messages),
    })
    expect(records.map(({ outcome, reward }) => [outcome, reward])).toEqual(
      Array.from({ length: 8 }, () => ['completed', 0.5]),
    )
    await telemetry.close()
    // 11 spans for each of 8 rollouts.
    const delta = telemetry.takeDelta() ?? []
    const dropped = delta.filter(({ family }) => family === 'spansDropped').flatMap(({ values }) => values)
    expect(dropped.reduce((sum, value) => sum + value, 0)).toBe(88)
  }
  expect(await leftSince(before)).toEqual([])
})

test('the span queue is bounded, and dropped spans are counted', async () => {
  await using collector = await Collector.start(() => {})
  await using telemetry = startTelemetry({
    env: { OTEL_EXPORTER_OTLP_ENDPOINT: collector.server.origin },
    run: 'r',
    metrics: false,
  })
  for (let count = 0; count < 10_000; count += 1) {
    const start: RolloutStartEvent = { kind: 'start', id: '0-0', job, run: undefined, parent: undefined }
    rolloutEvents.publish(start)
    const { trace } = start
    toolCalls.publish({ trace, tool: 't', callId: 'c', status: 'ok', startedAt: performance.now(), ms: 0 })
  }
  const delta = telemetry.takeDelta() ?? []
  const full = delta.find(({ family, labels }) => family === 'spansDropped' && labels[0] === 'queue_full')
  // One batch is under way, 8,192 wait.
  expect(full?.values).toEqual([10_000 - 512 - 8192])
})

const job = { id: '0-0', attempt: 1, sample: 0, task: { index: 0, id: '0', data: {} }, seed: 1 }

test('channels have no subscribers without an endpoint or metrics, nor after closing', async () => {
  const listening = (): boolean[] => [modelCalls, toolCalls, rolloutEvents].map((channel) => channel.hasSubscribers)
  const none = startTelemetry({ env: {}, run: 'r', metrics: false })
  expect(listening()).toEqual([false, false, false])
  expect(none.isTracing).toBe(false)
  const some = startTelemetry({ env: {}, run: 'r', metrics: true })
  expect(listening()).toEqual([true, true, true])
  await Promise.all([some.close(), some.close(), none.close()])
  expect(listening()).toEqual([false, false, false])
})

test.each([
  [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:4317', OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' }, 'http/json'],
  [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'collector:4318' }, 'is not a valid URL'],
])('unusable settings disable spans with a notice: %o', async (env, words) => {
  await using telemetry = startTelemetry({ env, run: 'r', metrics: false })
  expect(telemetry.isTracing).toBe(false)
  expect(telemetry.notices.join()).toContain(words)
})
