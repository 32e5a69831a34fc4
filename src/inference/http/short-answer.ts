import { malformedReply } from '../wire/broken-reply.ts'
import type { Source } from '../wire/source.ts'

/** Lists of models grow to a megabyte or two; nothing else that is asked for beside turns comes near. */
const maxBytes = 8 * 1024 * 1024

/** The text of an answer that is no reply of a model. Leaving the loop early, at one that does not end, closes the connection. */
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
