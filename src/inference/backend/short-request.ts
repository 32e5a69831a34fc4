import { malformedReply, type Source, transportError } from '../../apis/index.ts'
import type { Connections, ResponseHeaders } from '../../http/index.ts'
import { jsonOrText } from '../../kit/index.ts'

interface ShortRequest {
  readonly origin: string
  readonly path: string
  readonly method: 'GET' | 'POST'
  readonly headers: readonly string[]
  readonly body?: string | Buffer | undefined
  readonly source: Source
  readonly signal: AbortSignal
  readonly timeoutMs: number
}

export interface ShortAnswer {
  readonly status: number
  readonly headers: ResponseHeaders
  /** The body: parsed if it is JSON, else its text. */
  readonly document: unknown
}

/** Whether an answer of this status means that the server does not have what was asked for. */
export function isMissing(status: unknown): boolean {
  return status === 404 || status === 405 || status === 501
}

/** Lists of models grow to a megabyte or two; all other short answers are smaller. */
const maxBytes = 8 * 1024 * 1024

/** Sends a request whose answer is short. Rejects if there is no answer at all. */
export async function shortRequest(
  connections: Connections,
  { source, timeoutMs, headers, body, ...request }: ShortRequest,
): Promise<ShortAnswer> {
  try {
    const answer = await connections.pick().dispatcher.request({
      ...request,
      headers: [...headers],
      ...(body !== undefined && { body }),
      headersTimeout: timeoutMs,
      bodyTimeout: timeoutMs,
    })
    const text = await readText(answer.body, source)
    return { status: answer.statusCode, headers: answer.headers, document: jsonOrText(text) }
  } catch (error) {
    request.signal.throwIfAborted()
    throw transportError(source, error)
  }
}

async function readText(body: AsyncIterable<Buffer>, source: Source): Promise<string> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of body) {
    bytes += chunk.length
    if (bytes > maxBytes) throw malformedReply(source, `it is larger than ${maxBytes} bytes`)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString('utf8')
}
