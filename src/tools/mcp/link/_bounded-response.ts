import { TransformStream } from 'node:stream/web'
import type * as Undici from 'undici'
import { onFirstUse } from '../../../kit/index.ts'
import { maxErrorBytes, maxMessageBytes } from './_message-limits.ts'

const loadUndici = onFirstUse((load) => load('undici') as typeof Undici)

const lineFeed = 0x0a
const carriageReturn = 0x0d

/**
 * The same reply with a bound on what is read: it fails past `maxBytes`, counted over the whole or, in a stream of events, over
 * one event. A page that explains an error status is cut off. The SDK would read whatever a server sends.
 */
export function boundedResponse(response: Undici.Response, maxBytes = maxMessageBytes): Undici.Response {
  if (!response.body) return response
  const isStream = response.headers.get('content-type')?.startsWith('text/event-stream')
  const count = isStream ? eventBytes() : allBytes()
  const body = response.body.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        const bytes = count(chunk)
        if (response.ok && bytes > maxBytes) throw tooLong(maxBytes)
        if (response.ok || bytes <= maxErrorBytes) controller.enqueue(chunk)
        else controller.terminate()
      },
    }),
  )
  const undici = loadUndici()
  return new undici.Response(body, response)
}

function allBytes(): (chunk: Uint8Array) => number {
  let bytes = 0
  return (chunk) => (bytes += chunk.length)
}

/** Counts the bytes of the present event so far. An empty line ends an event. */
function eventBytes(): (chunk: Uint8Array) => number {
  let bytes = 0
  let isLineEmpty = true
  return (chunk) => {
    let start = 0
    for (let end = chunk.indexOf(lineFeed); end !== -1; end = chunk.indexOf(lineFeed, start)) {
      const isEmpty = isLineEmpty && (end === start || (end === start + 1 && chunk[start] === carriageReturn))
      bytes = isEmpty ? 0 : bytes + end + 1 - start
      isLineEmpty = true
      start = end + 1
    }
    bytes += chunk.length - start
    if (start < chunk.length) isLineEmpty = false
    return bytes
  }
}

function tooLong(maxBytes: number): Error {
  return new Error(`what the server sent is larger than ${maxBytes} bytes`)
}
