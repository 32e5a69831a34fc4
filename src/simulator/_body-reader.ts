import type { IncomingMessage } from 'node:http'
import { MillraceError } from '../errors/index.ts'

const maxBodyBytes = 32 * 1024 * 1024

/** Reads a body to its end and hands it over parsed. A client that goes away in the middle hears nothing. */
export function readBody(
  request: IncomingMessage,
  onEnd: (body: unknown) => void,
  onError: (error: unknown) => void,
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
    const message = `the body is larger than ${maxBodyBytes} bytes; send less`
    onError(new MillraceError('model_rejected', message, { data: { status: 413 } }))
  })
  request.on('end', () => {
    if (isRefused) return
    let body: unknown
    try {
      const [first] = chunks
      body = JSON.parse((chunks.length === 1 && first ? first : Buffer.concat(chunks)).toString())
    } catch (error) {
      const message = `the body is not JSON: ${error instanceof Error ? error.message : String(error)}`
      onError(new MillraceError('model_rejected', message, { data: { status: 400 } }))
      return
    }
    onEnd(body)
  })
}
