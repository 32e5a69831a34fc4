import type * as Undici from 'undici'
import { shownUrl } from '../inference/index.ts'
import {
  type Backoff,
  backoffMs,
  onFirstUse,
  packageVersion,
  Resource,
  RingQueue,
  sleep,
  type Variables,
} from '../kit/index.ts'
import type { MetricsRegistry } from './metrics-registry.ts'
import { schemaUrl } from './span.ts'

const loadUndici = onFirstUse((load) => load('undici') as typeof Undici)

/** How many spans may wait for the collector. Beyond this new ones are dropped and counted: a run never waits for them. */
const maxQueuedSpans = 8192
const maxBatchSpans = 512
/** How long a span may wait for others to fill its batch. */
const maxDelayMs = 1000
const maxTries = 4
const pause: Backoff = { firstMs: 1000, factor: 2, maxMs: 5000 }
/** How long closing waits for the collector when everything else has ended. */
const closeGraceMs = 3000
/** An answer only says how many spans were refused: a longer one is not read to its end. */
const maxAnswerLength = 65_536
const retriedStatuses = new Set([429, 502, 503, 504])

type ExportResult = { readonly kind: 'taken'; readonly rejected: number } | { readonly kind: 'refused' | 'failed' }

/**
 * Sends spans to a collector as OTLP/JSON: in batches, one request at a time, a few tries each. No rollout awaits it, and its
 * failures fail no rollout; spans that do not get through are counted.
 */
export class OtlpExporter extends Resource {
  readonly #settings: OtlpSettings
  readonly #registry: MetricsRegistry
  readonly #pool: Undici.Pool
  readonly #path: string
  readonly #head: string
  readonly #queue = new RingQueue<string>()
  readonly #closing = new AbortController()
  #timer: NodeJS.Timeout | undefined
  #sending: Promise<void> | undefined

  constructor(settings: OtlpSettings, registry: MetricsRegistry, instance: string) {
    super()
    const { url, timeoutMs } = settings
    this.#settings = settings
    this.#registry = registry
    this.#path = url.pathname + url.search
    const undici = loadUndici()
    this.#pool = new undici.Pool(url.origin, { connections: 1, connect: { timeout: timeoutMs } })
    const resource = { 'service.name': 'millrace', 'service.instance.id': instance, ...settings.resource }
    const attributes = Object.entries(resource).map(([key, stringValue]) => ({ key, value: { stringValue } }))
    const scope = { name: 'millrace', version: packageVersion() }
    this.#head = `{"resourceSpans":[{"resource":${JSON.stringify({ attributes })},"scopeSpans":[{"scope":${JSON.stringify(scope)},"schemaUrl":"${schemaUrl}","spans":[`
  }

  add(span: string): void {
    if (this.isClosed) return this.#drop(1, 'closed')
    if (this.#queue.size >= maxQueuedSpans) return this.#drop(1, 'queue_full')
    this.#queue.push(span)
    if (this.#sending) return
    if (this.#queue.size >= maxBatchSpans) this.#start()
    else this.#timer ??= setTimeout(() => this.#start(), maxDelayMs).unref()
  }

  protected async onClose(): Promise<void> {
    clearTimeout(this.#timer)
    const patience = setTimeout(() => this.#closing.abort(), closeGraceMs)
    try {
      await this.#sending
      if (this.#queue.size > 0) await this.#sendAll()
    } finally {
      clearTimeout(patience)
      await this.#pool.destroy()
    }
  }

  #start(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#sending = this.#sendAll().finally(() => {
      this.#sending = undefined
      if (this.#queue.size > 0 && !this.isClosed) this.#timer ??= setTimeout(() => this.#start(), maxDelayMs).unref()
    })
  }

  /** Sends a batch, and then more as long as they are full; once closed, everything. */
  async #sendAll(): Promise<void> {
    do {
      const batch: string[] = []
      for (let span = this.#queue.shift(); span; span = this.#queue.shift()) {
        batch.push(span)
        if (batch.length === maxBatchSpans) break
      }
      await this.#sendBatch(batch)
    } while (this.#queue.size >= maxBatchSpans || (this.isClosed && this.#queue.size > 0))
  }

  async #sendBatch(batch: readonly string[]): Promise<void> {
    const body = `${this.#head}${batch.join(',')}]}]}]}`
    for (let tries = 1; ; tries += 1) {
      const isLastTry = tries === maxTries || this.isClosed
      const result = await this.#post(body)
      if (result.kind === 'taken') {
        this.#registry.series('spansExported').add(batch.length - result.rejected)
        if (result.rejected > 0) this.#drop(result.rejected, 'refused')
        return
      }
      if (result.kind === 'refused') return this.#drop(batch.length, 'refused')
      if (isLastTry) return this.#drop(batch.length, 'unreachable')
      // Closing ends the wait, and the batch has one more try.
      await sleep(backoffMs(pause, tries), this.closedSignal).catch(() => {})
    }
  }

  async #post(body: string): Promise<ExportResult> {
    const { headers, timeoutMs } = this.#settings
    try {
      const response = await this.#pool.request({
        path: this.#path,
        method: 'POST',
        headers: ['content-type', 'application/json', ...headers],
        body,
        headersTimeout: timeoutMs,
        bodyTimeout: timeoutMs,
        signal: this.#closing.signal,
      })
      const rejected = await rejectedIn(response)
      if (response.statusCode < 300) return { kind: 'taken', rejected }
      return { kind: retriedStatuses.has(response.statusCode) ? 'failed' : 'refused' }
    } catch {
      // Whatever the error was, the spans did not arrive, and they are counted as dropped.
      return { kind: 'failed' }
    }
  }

  #drop(count: number, reason: 'queue_full' | 'refused' | 'unreachable' | 'closed'): void {
    this.#registry.series('spansDropped', reason).add(count)
  }
}

/** How many spans the collector refused, by its answer. */
async function rejectedIn({ body }: Undici.Dispatcher.ResponseData): Promise<number> {
  let text = ''
  for await (const chunk of body.setEncoding('utf8')) {
    text += String(chunk)
    if (text.length > maxAnswerLength) return 0
  }
  const [, rejected = '0'] = /"rejectedSpans"\s*:\s*"?(\d+)/.exec(text) ?? []
  return Number(rejected)
}

interface OtlpSettings {
  readonly url: URL
  /** Names and values, alternating. */
  readonly headers: readonly string[]
  readonly timeoutMs: number
  readonly resource: Readonly<Record<string, string>>
}

const defaultTimeoutMs = 10_000

/**
 * Reads OpenTelemetry's own variables. These are often set for a whole machine, so a value that cannot be used turns spans off
 * and gives a notice; it never fails a run.
 */
export function otlpSettings(env: Variables): { readonly settings?: OtlpSettings; readonly notice?: string } {
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
    return {
      notice: `no spans are sent: "${shownUrl(endpoint)}" is not a valid URL. Write it like http://localhost:4318.`,
    }
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
