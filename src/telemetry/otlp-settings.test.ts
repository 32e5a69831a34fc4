import { expect, test } from 'vitest'
import { otlpSettings } from './otlp-settings.ts'

const endpoint = 'http://collector:4318'

test.each([
  [{}],
  [{ OTEL_EXPORTER_OTLP_ENDPOINT: '' }],
  [{ OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_SDK_DISABLED: 'true' }],
  [{ OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_TRACES_EXPORTER: 'none' }],
])('off without a word: %o', (env) => {
  expect(otlpSettings(env)).toEqual({})
})

test('the shared endpoint gets a path, the one for traces is taken as it is and wins', () => {
  const url = (env: Record<string, string>): string | undefined => otlpSettings(env).settings?.url.href
  expect(url({ OTEL_EXPORTER_OTLP_ENDPOINT: `${endpoint}/` })).toBe(`${endpoint}/v1/traces`)
  expect(url({ OTEL_EXPORTER_OTLP_ENDPOINT: `${endpoint}/otlp` })).toBe(`${endpoint}/otlp/v1/traces`)
  const own = { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'https://other/x', OTEL_EXPORTER_OTLP_ENDPOINT: endpoint }
  expect(url(own)).toBe('https://other/x')
})

test('headers, time and resource', () => {
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
