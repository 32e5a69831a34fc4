import { ScriptedServer, sendJson, type Handler } from '../inference/scripted-server.ts'

export interface ReceivedSpan {
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId?: string
  readonly name: string
  readonly kind: number
  readonly start: bigint
  readonly end: bigint
  readonly isError: boolean
  readonly attributes: Readonly<Record<string, unknown>>
}

interface WireSpan extends Omit<ReceivedSpan, 'start' | 'end' | 'isError' | 'attributes'> {
  startTimeUnixNano: string
  endTimeUnixNano: string
  status?: { code: number }
  attributes: { key: string; value: Record<string, unknown> }[]
}

interface WireBatch {
  resourceSpans: {
    resource: { attributes: WireSpan['attributes'] }
    scopeSpans: { scope: { name: string }; schemaUrl: string; spans: WireSpan[] }[]
  }[]
}

/** Stands in for a collector: a real server on a free port that takes OTLP/JSON and keeps what it was sent. */
export class Collector implements AsyncDisposable {
  readonly server: ScriptedServer

  private constructor(server: ScriptedServer) {
    this.server = server
  }

  static async start(answer: Handler = (response) => sendJson(response, {})): Promise<Collector> {
    return new Collector(await ScriptedServer.start(answer))
  }

  get batches(): WireBatch[] {
    return this.server.requests.map(({ body }) => JSON.parse(body) as WireBatch)
  }

  get spans(): ReceivedSpan[] {
    const all = this.batches.flatMap(({ resourceSpans }) => resourceSpans.flatMap(({ scopeSpans }) => scopeSpans))
    return all.flatMap(({ spans }) => spans.map(received))
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.server[Symbol.asyncDispose]()
  }
}

function received({ startTimeUnixNano, endTimeUnixNano, status, attributes, ...rest }: WireSpan): ReceivedSpan {
  return {
    ...rest,
    start: BigInt(startTimeUnixNano),
    end: BigInt(endTimeUnixNano),
    isError: status?.code === 2,
    attributes: Object.fromEntries(attributes.map(({ key, value }) => [key, plain(value)])),
  }
}

function plain(value: Record<string, unknown>): unknown {
  const { intValue, arrayValue } = value as { intValue?: string; arrayValue?: { values: Record<string, unknown>[] } }
  if (intValue !== undefined) return Number(intValue)
  return arrayValue ? arrayValue.values.map(plain) : Object.values(value)[0]
}
