import { malformedReply } from '../wire/broken-reply.ts'
import type { Source } from '../wire/source.ts'

/** Lists of models grow to a megabyte or two; all other short answers are smaller. */
const maxBytes = 8 * 1024 * 1024

/** The text of an answer that is no model reply. If it is too long, leaving the loop early closes the connection. */
export async function readShortAnswer(body: AsyncIterable<Buffer>, source: Source): Promise<string> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of body) {
    bytes += chunk.length
    if (bytes > maxBytes) throw malformedReply(source, `it is larger than ${maxBytes} bytes`)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString('utf8')
}
