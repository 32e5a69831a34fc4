import type { IncomingMessage } from 'node:http'
import { parseBody } from '../apis/index.ts'
import { MillraceError } from '../errors/index.ts'
import { utf8Problem } from '../kit/index.ts'
import { isJsonObject, type ClientApi, type Json, type JsonObject } from '../schema/index.ts'

export function parsedMembers(api: ClientApi, text: string): JsonObject {
  let body: Json
  try {
    body = parseBody(api, text)
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new MillraceError('model_rejected', `the body is not JSON: ${why}`, { data: { status: 400 }, cause: error })
  }
  if (isJsonObject(body)) return body
  throw new MillraceError('model_rejected', 'the body must be a JSON object', { data: { status: 400 } })
}

const maxBodyBytes = 64 * 1024 * 1024

/** The body of a request. The rest of one that is too long is read and dropped: its client still writes, and could not read an answer. */
export async function readBody(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = []
  let length = 0
  for await (const chunk of request as AsyncIterable<Buffer>) {
    length += chunk.length
    if (length <= maxBodyBytes) chunks.push(chunk)
    else chunks.length = 0
  }
  if (length > maxBodyBytes) {
    throw new MillraceError('usage', `a body has at most ${maxBodyBytes} bytes: send less`, { data: { status: 413 } })
  }
  const body = Buffer.concat(chunks)
  const problem = utf8Problem(body)
  if (problem !== undefined) throw new MillraceError('model_rejected', problem, { data: { status: 400 } })
  return body
}
