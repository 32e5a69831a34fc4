import { spanAttributes, type AttributeName, type AttributeType, type SpanAttributes } from './span-attributes.ts'

/** Span kinds, as OTLP numbers them. */
export const spanKinds = { internal: 1, client: 3 } as const

export interface Span {
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId: string | undefined
  readonly name: string
  readonly kind: (typeof spanKinds)[keyof typeof spanKinds]
  /** Microseconds since 1970. */
  readonly startMicros: number
  readonly endMicros: number
  readonly attributes: SpanAttributes
  /** A code, not a message: messages may quote what a model or a user wrote. */
  readonly error: string | undefined
}

/** Longer strings are cut: they say little more, and the memory of the queue depends on this limit. */
const maxStringLength = 512

/** A span as OTLP/JSON. A string is smaller than the objects it comes from, and a batch only joins strings. */
export function spanJson(span: Span): string {
  const { traceId, spanId, parentSpanId, name, kind, startMicros, endMicros, attributes, error } = span
  let json = `{"traceId":"${traceId}","spanId":"${spanId}","flags":1`
  if (parentSpanId !== undefined) json += `,"parentSpanId":"${parentSpanId}"`
  json += `,"name":${text(name)},"kind":${kind},"startTimeUnixNano":"${startMicros}000","endTimeUnixNano":"${endMicros}000"`
  json += `,"attributes":[${attributesJson(attributes)}]`
  if (error !== undefined) json += ',"status":{"code":2}'
  return `${json}}`
}

type AttributeValue = string | number | boolean | readonly string[]

/** How each type is written: before the value, the value, after it. 64-bit integers are strings in JSON. */
const writers: Readonly<Record<AttributeType, readonly [string, (value: AttributeValue) => string, string]>> = {
  string: ['{"stringValue":', (value) => text(String(value)), '}}'],
  int: ['{"intValue":"', String, '"}}'],
  double: ['{"doubleValue":', String, '}}'],
  boolean: ['{"boolValue":', String, '}}'],
  strings: ['{"arrayValue":{"values":[', (value) => stringsJson(value), ']}}}'],
}

/** The JSON before the value of each attribute, written once. */
const heads = Object.fromEntries(
  Object.entries(spanAttributes).map(([name, type]) => [name, `,{"key":"${name}","value":${writers[type][0]}`]),
) as Readonly<Record<AttributeName, string>>

function attributesJson(attributes: SpanAttributes): string {
  let json = ''
  for (const key in attributes) {
    const name = key as AttributeName
    const value = attributes[name]
    if (value === undefined || value === null) continue
    const [, write, tail] = writers[spanAttributes[name]]
    json += heads[name] + write(value) + tail
  }
  return json.slice(1)
}

function stringsJson(value: AttributeValue): string {
  const items = typeof value === 'object' ? value : [String(value)]
  return items.map((item) => `{"stringValue":${text(item)}}`).join(',')
}

function text(value: string): string {
  return JSON.stringify(value.length > maxStringLength ? value.slice(0, maxStringLength) : value)
}
