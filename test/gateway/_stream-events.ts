import type { JsonObject } from '../../src/schema/index.ts'

/** One server-sent event as a client reads it. */
export interface StreamEvent {
  readonly name?: string
  readonly data: JsonObject | '[DONE]'
}

/** How a stream ended: with its reply complete, with an error that the API has words for, or neither. */
export type StreamEnd = 'complete' | 'error' | 'cut'

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
