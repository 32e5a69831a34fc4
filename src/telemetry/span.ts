/**
 * The version of OpenTelemetry's semantic conventions that the `gen_ai.*` names are taken from: the last release that defines
 * them itself.
 */
export const schemaUrl = 'https://opentelemetry.io/schemas/1.41.0'

/** Every attribute of a span and its type. An attribute has one type, also where a double happens to be whole. */
export const spanAttributes = {
  'gen_ai.operation.name': 'string',
  'gen_ai.provider.name': 'string',
  'gen_ai.agent.name': 'string',
  'gen_ai.conversation.id': 'string',
  'gen_ai.request.model': 'string',
  'gen_ai.request.max_tokens': 'int',
  'gen_ai.request.temperature': 'double',
  'gen_ai.request.top_p': 'double',
  'gen_ai.request.seed': 'int',
  'gen_ai.response.finish_reasons': 'strings',
  'gen_ai.response.time_to_first_chunk': 'double',
  'gen_ai.usage.input_tokens': 'int',
  'gen_ai.usage.cache_read.input_tokens': 'int',
  'gen_ai.usage.output_tokens': 'int',
  'gen_ai.usage.reasoning.output_tokens': 'int',
  'gen_ai.tool.name': 'string',
  'gen_ai.tool.type': 'string',
  'gen_ai.tool.call.id': 'string',
  'error.type': 'string',
  'millrace.run': 'string',
  'millrace.worker': 'string',
  'millrace.rollout': 'string',
  'millrace.attempt': 'int',
  'millrace.group': 'string',
  'millrace.task.index': 'int',
  'millrace.sample': 'int',
  'millrace.resumed': 'boolean',
  'millrace.outcome': 'string',
  'millrace.truncated': 'boolean',
  'millrace.reward': 'double',
  'millrace.turns': 'int',
  'millrace.cost_usd': 'double',
  'millrace.backend': 'string',
  'millrace.tries': 'int',
  'millrace.wait_seconds': 'double',
  'millrace.weight_version': 'string',
  'millrace.tool.status': 'string',
} as const satisfies Record<string, AttributeType>

type AttributeType = 'string' | 'int' | 'double' | 'boolean' | 'strings'

interface ValueOf {
  string: string
  int: number
  double: number
  boolean: boolean
  strings: readonly string[]
}

type AttributeName = keyof typeof spanAttributes

/** Attributes that are undefined or null are left out. */
export type SpanAttributes = {
  readonly [Name in AttributeName]?: ValueOf[(typeof spanAttributes)[Name]] | null | undefined
}

/** Span kinds, as OTLP numbers them. */
export const spanKinds = { internal: 1, client: 3 } as const

export interface Span {
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId: string | undefined
  readonly name: string
  readonly kind: (typeof spanKinds)[keyof typeof spanKinds]
  /** Milliseconds since 1970. */
  readonly startMs: number
  readonly endMs: number
  readonly attributes: SpanAttributes
  /** A code, not a message: messages may quote what a model or a user wrote. */
  readonly error: string | undefined
}

/** Longer strings are cut: they say little more, and the memory of the queue depends on this limit. */
const maxStringLength = 512

/** A span as OTLP/JSON. A string is smaller than the objects it comes from, and a batch only joins strings. */
export function spanJson({ name, startMs, endMs, attributes, error, ...ids }: Span): string {
  return JSON.stringify({
    ...ids,
    flags: 1,
    name: shortened(name),
    startTimeUnixNano: `${Math.round(startMs * 1000)}000`,
    endTimeUnixNano: `${Math.round(endMs * 1000)}000`,
    attributes: Object.entries(attributes).flatMap(([key, value]) =>
      value === undefined || value === null ? [] : [{ key, value: attributeValue(key as AttributeName, value) }],
    ),
    ...(error !== undefined && { status: { code: 2 } }),
  })
}

function attributeValue(name: AttributeName, value: string | number | boolean | readonly string[]): object {
  if (typeof value === 'string') return { stringValue: shortened(value) }
  if (typeof value === 'boolean') return { boolValue: value }
  if (typeof value === 'object')
    return { arrayValue: { values: value.map((each) => ({ stringValue: shortened(each) })) } }
  // 64-bit integers are strings in JSON.
  return spanAttributes[name] === 'int' ? { intValue: String(value) } : { doubleValue: value }
}

function shortened(text: string): string {
  return text.length > maxStringLength ? text.slice(0, maxStringLength) : text
}
