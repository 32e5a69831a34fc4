import { shownUrl } from '../inference/index.ts'
import type { Variables } from '../kit/index.ts'

export interface OtlpSettings {
  readonly url: URL
  /** Names and values, alternating. */
  readonly headers: readonly string[]
  readonly timeoutMs: number
  readonly resource: Readonly<Record<string, string>>
}

/** Where spans go, if anywhere; and a notice for the user, if something is wrong. */
export interface OtlpChoice {
  readonly settings?: OtlpSettings
  readonly notice?: string
}

const defaultTimeoutMs = 10_000

/**
 * Reads OpenTelemetry's own variables. These are often set for a whole machine, so a value that cannot be used turns spans off
 * and gives a notice; it never fails a run.
 */
export function otlpSettings(env: Variables): OtlpChoice {
  if (env['OTEL_SDK_DISABLED'] === 'true' || env['OTEL_TRACES_EXPORTER'] === 'none') return {}
  const own = env['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT']
  const shared = env['OTEL_EXPORTER_OTLP_ENDPOINT']
  const endpoint = own || (shared && `${shared.replace(/\/+$/, '')}/v1/traces`)
  if (!endpoint) return {}
  const protocol = env['OTEL_EXPORTER_OTLP_TRACES_PROTOCOL'] || env['OTEL_EXPORTER_OTLP_PROTOCOL']
  if (protocol === 'grpc') {
    return {
      notice: 'no spans are sent: they go as http/json only. Name the HTTP port of the collector, usually 4318.',
    }
  }
  const url = URL.parse(endpoint)
  if (!url || (url.protocol !== 'http:' && url.protocol !== 'https:')) {
    return { notice: `no spans are sent: "${shownUrl(endpoint)}" is no url. Write it like http://localhost:4318.` }
  }
  const timeout = Number(env['OTEL_EXPORTER_OTLP_TRACES_TIMEOUT'] || env['OTEL_EXPORTER_OTLP_TIMEOUT'])
  return {
    settings: {
      url,
      headers: [...pairs(env['OTEL_EXPORTER_OTLP_HEADERS']), ...pairs(env['OTEL_EXPORTER_OTLP_TRACES_HEADERS'])].flat(),
      timeoutMs: timeout > 0 ? timeout : defaultTimeoutMs,
      resource: {
        ...Object.fromEntries(pairs(env['OTEL_RESOURCE_ATTRIBUTES'])),
        ...(env['OTEL_SERVICE_NAME'] && { 'service.name': env['OTEL_SERVICE_NAME'] }),
      },
    },
  }
}

/** `name=value,name=value`, percent-encoded, as in W3C baggage. */
function pairs(text = ''): [name: string, value: string][] {
  return text.split(',').flatMap((item): [string, string][] => {
    const [name = '', ...value] = item.split('=')
    return name.trim() === '' || value.length === 0 ? [] : [[name.trim(), decoded(value.join('=').trim())]]
  })
}

function decoded(value: string): string {
  try {
    return decodeURIComponent(value)
  } catch {
    return value
  }
}
