import { expect, test } from 'vitest'
import { activeResources, leftSince } from '../../test/support/kit/active-resources.ts'
import { ScriptedServer, sendJson, type Handler } from '../../test/support/inference/scripted-server.ts'
import { MetricsRegistry } from './metrics-registry.ts'
import { OtlpExporter, otlpSettings } from './otlp-exporter.ts'

const span = '{"name":"x"}'

/** An exporter to a real server, and what it counted. */
async function exporting(answer: Handler) {
  const server = await ScriptedServer.start(answer)
  const { settings } = otlpSettings({ OTEL_EXPORTER_OTLP_ENDPOINT: server.origin })
  if (!settings) throw new Error('spans are off')
  const registry = new MetricsRegistry()
  const exporter = new OtlpExporter(settings, registry, 'one')
  const counted = (): Record<string, number> =>
    Object.fromEntries(
      [...registry.all('spansExported'), ...registry.all('spansDropped')].map(({ labels, values }) => [
        labels[0] ?? 'exported',
        values[0] ?? 0,
      ]),
    )
  return {
    server,
    exporter,
    counted,
    [Symbol.asyncDispose]: async () => {
      await exporter.close()
      await server[Symbol.asyncDispose]()
    },
  }
}

test('a batch refused by a busy collector is sent again', async () => {
  let tries = 0
  await using setting = await exporting((response) => {
    tries += 1
    sendJson(response, {}, tries === 1 ? 503 : 200)
  })
  for (let count = 0; count < 512; count += 1) setting.exporter.add(span)
  await setting.server.received(2)
  await expect.poll(setting.counted).toEqual({ exported: 512 })
  const [first, second] = setting.server.requests
  expect(second?.body).toBe(first?.body)
})

test('spans that the collector rejects are counted as dropped', async () => {
  await using setting = await exporting((response) => sendJson(response, { partialSuccess: { rejectedSpans: '2' } }))
  for (let count = 0; count < 5; count += 1) setting.exporter.add(span)
  await setting.exporter.close()
  expect(setting.counted()).toEqual({ exported: 3, refused: 2 })
})

test('a single span is sent without further spans', async () => {
  await using setting = await exporting((response) => sendJson(response, {}))
  setting.exporter.add(span)
  await expect.poll(setting.counted).toEqual({ exported: 1 })
})

test('closing sends all spans, may be repeated, and drops later spans', async () => {
  const before = activeResources()
  {
    await using setting = await exporting((response) => sendJson(response, {}))
    const { exporter } = setting
    for (let count = 0; count < 1300; count += 1) exporter.add(span)
    await Promise.all([exporter.close(), exporter.close()])
    await exporter[Symbol.asyncDispose]()
    exporter.add(span)
    expect(setting.counted()).toEqual({ exported: 1300, closed: 1 })
    expect(setting.server.requests).toHaveLength(3)
  }
  expect(await leftSince(before)).toEqual([])
})

test('closing during a retry delay retries the batch at once', async () => {
  let tries = 0
  await using setting = await exporting((response) => {
    tries += 1
    sendJson(response, {}, tries < 2 ? 429 : 200)
  })
  for (let count = 0; count < 512; count += 1) setting.exporter.add(span)
  await setting.server.received(1)
  await setting.exporter.close()
  expect(setting.counted()).toEqual({ exported: 512 })
})

const endpoint = 'http://collector:4318'

test.each([
  [{}],
  [{ OTEL_EXPORTER_OTLP_ENDPOINT: '' }],
  [{ OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_SDK_DISABLED: 'true' }],
  [{ OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_TRACES_EXPORTER: 'none' }],
])('tracing is off, without a message: %o', (env) => {
  expect(otlpSettings(env)).toEqual({})
})

test('the shared endpoint gets a path; the traces endpoint is used unchanged and takes precedence', () => {
  const url = (env: Record<string, string>): string | undefined => otlpSettings(env).settings?.url.href
  expect(url({ OTEL_EXPORTER_OTLP_ENDPOINT: `${endpoint}/` })).toBe(`${endpoint}/v1/traces`)
  expect(url({ OTEL_EXPORTER_OTLP_ENDPOINT: `${endpoint}/otlp` })).toBe(`${endpoint}/otlp/v1/traces`)
  const own = { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'https://other/x', OTEL_EXPORTER_OTLP_ENDPOINT: endpoint }
  expect(url(own)).toBe('https://other/x')
})

test('headers, timeout and resource are read from the environment', () => {
  const { settings } = otlpSettings({
    OTEL_EXPORTER_OTLP_ENDPOINT: endpoint,
    OTEL_EXPORTER_OTLP_HEADERS: 'authorization=Basic%20a=b, x-bad=%zz,broken',
    OTEL_EXPORTER_OTLP_TRACES_HEADERS: 'x-more=1',
    OTEL_EXPORTER_OTLP_TIMEOUT: 'soon',
    OTEL_EXPORTER_OTLP_TRACES_TIMEOUT: '250',
    OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment=lab,service.name=ignored',
    OTEL_SERVICE_NAME: 'night-shift',
  })
  expect(settings).toMatchObject({
    headers: ['authorization', 'Basic a=b', 'x-bad', '%zz', 'x-more', '1'],
    timeoutMs: 250,
    resource: { 'deployment.environment': 'lab', 'service.name': 'night-shift' },
  })
  const nonsense = { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_EXPORTER_OTLP_TIMEOUT: 'soon' }
  expect(otlpSettings(nonsense).settings?.timeoutMs).toBe(10_000)
})
