import type { IncomingMessage } from 'node:http'
import { MillraceError } from '../errors/index.ts'
import { utf8Problem } from '../kit/index.ts'
import { isJsonObject, type JsonObject } from '../schema/index.ts'

const maxBodyBytes = 32 * 1024 * 1024

/** Reads a body to its end and hands it over; an empty one counts as `{}`. If the client goes away before, nothing is called. */
export function readBody(
  request: IncomingMessage,
  onEnd: (body: JsonObject) => void,
  onError: (error: MillraceError) => void,
): void {
  const chunks: Buffer[] = []
  let bytes = 0
  let isRefused = false
  request.on('data', (chunk: Buffer) => {
    bytes += chunk.length
    if (isRefused) return
    if (bytes <= maxBodyBytes) {
      chunks.push(chunk)
      return
    }
    isRefused = true
    chunks.length = 0
    onError(refused(`the body is larger than ${maxBodyBytes} bytes; send less`, 413))
  })
  request.on('end', () => {
    if (isRefused) return
    const [first] = chunks
    const body = parsed(chunks.length === 1 && first ? first : Buffer.concat(chunks))
    if (body instanceof MillraceError) onError(body)
    else onEnd(body)
  })
}

function parsed(bytes: Buffer): JsonObject | MillraceError {
  const problem = utf8Problem(bytes)
  if (problem !== undefined) return refused(problem, 400)
  let value: unknown
  try {
    value = bytes.length === 0 ? {} : JSON.parse(bytes.toString())
  } catch (error) {
    return refused(`the body is not JSON: ${error instanceof Error ? error.message : String(error)}`, 400)
  }
  return isJsonObject(value) ? value : refused('the body is not an object, such as {"model": "sim"}', 400)
}

function refused(message: string, status: number): MillraceError {
  return new MillraceError('model_rejected', message, { data: { status } })
}
