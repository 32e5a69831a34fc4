import type { ApiName, Json, JsonObject } from '../../../src/schema/index.ts'
import { anthropicErrorSchema, openAiErrorSchema } from '../serve/vendor-schemas.ts'

/** One server-sent event as a client reads it. */
export interface StreamEvent {
  readonly name?: string
  readonly data: JsonObject | '[DONE]'
}

/** How a stream ended: with its reply complete, with an error that the API has words for, or neither. */
type StreamEnd = 'complete' | 'error' | 'cut'

/** The events of a stream that has ended. Throws for anything that a client could not read. */
export function readEvents(text: string): StreamEvent[] {
  if (text === '') return []
  if (!text.endsWith('\n\n')) throw new Error(`the last event has no end: ${text.slice(-80)}`)
  return text.slice(0, -2).split('\n\n').map(readEvent)
}

/** The whole events that have come so far. */
export function readEventsSoFar(text: string): StreamEvent[] {
  const end = text.lastIndexOf('\n\n')
  return end === -1 ? [] : readEvents(text.slice(0, end + 2))
}

function readEvent(block: string): StreamEvent {
  // A client of these ends lines at a lone CR, too.
  const lines = block.split(/\r\n|[\r\n]/)
  const [first = '', ...rest] = lines
  const name = first.startsWith('event: ') ? first.slice('event: '.length) : undefined
  const [line, ...more] = name === undefined ? lines : rest
  if (line === undefined || !line.startsWith('data: ') || more.length > 0) {
    throw new Error(`not an event of one line of data: ${JSON.stringify(block.slice(0, 200))}`)
  }
  const written = line.slice('data: '.length)
  const data = written === '[DONE]' ? written : readObject(written)
  return name === undefined ? { data } : { name, data }
}

export function readObject(text: string): JsonObject {
  const value: unknown = JSON.parse(text)
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as JsonObject
  throw new Error(`no JSON object: ${text.slice(0, 80)}`)
}

/** The objects among the events' data. */
export function documentsOf(events: readonly StreamEvent[]): JsonObject[] {
  return events.flatMap(({ data }) => (data === '[DONE]' ? [] : [data]))
}

/**
 * Reads a stream that has ended as strictly as any client might, and says how it ended. Throws for one that its API does not
 * allow. `isPassed`: the events are a backend's own, which is answerable for what they say.
 */
export function checkStream(api: ApiName, text: string, isPassed = false): StreamEnd {
  const events = readEvents(text)
  const done = events.findIndex(({ data }) => data === '[DONE]')
  if (done !== -1 && done !== events.length - 1) throw new Error('something follows [DONE]')
  const documents = documentsOf(events)
  const error = documents.findIndex((document) => isError(api, document))
  if (error !== -1 && error !== events.length - 1) throw new Error('something follows an error')
  const last = documents[error]
  if (last) checkStreamError(api, last)
  if (!isPassed) checks[api](events)
  if (last) return 'error'
  return documents.some((document) => isEnd(api, document)) ? 'complete' : 'cut'
}

/** An error as the API writes it, with a status that says so. */
export function checkError(api: ApiName, status: number, body: string): void {
  if (status < 400 || status > 599) throw new Error(`an error with status ${status}: ${body.slice(0, 200)}`)
  errorSchema(api).parse(JSON.parse(body))
}

function errorSchema(api: ApiName): typeof openAiErrorSchema | typeof anthropicErrorSchema {
  return api === 'messages' ? anthropicErrorSchema : openAiErrorSchema
}

function checkStreamError(api: ApiName, document: JsonObject): void {
  errorSchema(api).parse(api === 'responses' ? { error: document['error'] } : document)
}

function isError(api: ApiName, { type, error }: JsonObject): boolean {
  return api === 'chat' ? error !== undefined && error !== null : type === 'error'
}

function isEnd(api: ApiName, document: JsonObject): boolean {
  const { type } = document
  if (api === 'responses') return type === 'response.completed' || type === 'response.incomplete'
  if (api === 'messages') return type === 'message_stop'
  return listOf(document['choices']).some((choice) => typeof objectOf(choice)['finish_reason'] === 'string')
}

const checks: Readonly<Record<ApiName, (events: readonly StreamEvent[]) => void>> = {
  chat: checkChunks,
  responses: checkResponseEvents,
  messages: checkMessageEvents,
}

/** Chunks of one completion: a role first, calls that begin before they go on, nothing but the usage after the finish. */
function checkChunks(events: readonly StreamEvent[]): void {
  const calls = new Set<Json>()
  let hasFinished = false
  for (const [index, { name, data }] of events.entries()) {
    must(name === undefined, 'chunks have no names')
    if (data === '[DONE]' || isError('chat', data)) continue
    must(data['object'] === 'chat.completion.chunk', 'every event is a chunk')
    must(data['id'] === objectOf(events[0]?.data)['id'], 'all chunks have one id')
    for (const choice of listOf(data['choices']).map(objectOf)) {
      const delta = objectOf(choice['delta'])
      if (index === 0) must(delta['role'] === 'assistant', 'the first chunk has the role')
      must(!hasFinished, 'nothing is said after the finish')
      for (const call of listOf(delta['tool_calls']).map(objectOf)) {
        const number = call['index'] ?? null
        must(calls.has(number) || (isText(call['id']) && call['type'] === 'function'), 'a call begins with its id')
        calls.add(number)
      }
      hasFinished = isText(choice['finish_reason'])
    }
  }
  if (hasFinished) must(events.at(-1)?.data === '[DONE]' || isErrorLast(events), 'a complete stream ends with [DONE]')
}

function isErrorLast(events: readonly StreamEvent[]): boolean {
  const last = events.at(-1)?.data
  return last !== undefined && last !== '[DONE]' && isError('chat', last)
}

/** Events numbered without a gap; items that are added, go on and are done, all of them before the end. */
function checkResponseEvents(events: readonly StreamEvent[]): void {
  const open = new Set<Json>()
  let added = 0
  for (const [index, { name, data }] of events.entries()) {
    if (data === '[DONE]') throw new Error('this API has no [DONE]')
    const { type, sequence_number: number, output_index: item = null } = data
    must(name === type, 'an event is named as its type')
    if (type === 'error') continue
    must(number === index, `event ${index} has another number`)
    if (index === 0) must(type === 'response.created', 'it begins with response.created')
    if (type === 'response.output_item.added') {
      must(item === added, 'items are numbered in order')
      added += 1
      open.add(item)
    } else if (item !== null) must(open.has(item), 'an event belongs to an item that is open')
    if (type === 'response.output_item.done') open.delete(item)
    if (isEnd('responses', data)) {
      must(open.size === 0, 'all items are done at the end')
      must(listOf(objectOf(data['response'])['output']).length === added, 'the response has all its items')
      must(index === events.length - 1, 'nothing follows the end')
    }
  }
}

/** A message that starts, blocks that start, go on and stop one after another, a reason, and the stop. */
function checkMessageEvents(events: readonly StreamEvent[]): void {
  let started = 0
  let open: Json = null
  let hasReason = false
  for (const [index, { name, data }] of events.entries()) {
    if (data === '[DONE]') throw new Error('this API has no [DONE]')
    const { type, index: block = null } = data
    must(name === type, 'an event is named as its type')
    if (type === 'error') continue
    must((type === 'message_start') === (index === 0), 'it begins with message_start, once')
    if (type === 'content_block_start') {
      must(open === null && block === started, 'one block after another')
      started += 1
      open = block
    } else if (type === 'content_block_stop') {
      must(open !== null && block === open, 'a block that is open stops')
      open = null
    } else if (type === 'content_block_delta') {
      must(typeof block === 'number' && block < started, 'a piece belongs to a block that has started')
    } else if (type === 'message_delta') {
      hasReason = isText(objectOf(data['delta'])['stop_reason'])
    } else if (type === 'message_stop') {
      must(open === null && hasReason && index === events.length - 1, 'it stops with a reason, after its blocks, last')
    }
  }
}

function must(condition: boolean, rule: string): void {
  if (!condition) throw new Error(`the stream breaks a rule: ${rule}`)
}

function isText(value: Json | undefined): boolean {
  return typeof value === 'string'
}

function objectOf(value: Json | undefined): JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as JsonObject) : {}
}

function listOf(value: Json | undefined): readonly Json[] {
  return Array.isArray(value) ? value : []
}
