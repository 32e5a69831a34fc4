import type { FastifyReply } from 'fastify'
import { errorBody } from './_door-error.ts'
import { ReplyStream } from './_reply-stream.ts'
import { replyText } from './_reply-text.ts'
import type { RecordForm } from './codec-messages.ts'
import type { CodecPool } from './codec-pool.ts'
import type { SettledRollout } from './result-reader.ts'
import type { Submission } from './rollout-service.ts'

/** Says which request a reply belongs to. */
export const requestHeader = 'millrace-request'

const jsonType = 'application/json; charset=utf-8'
const linesType = 'application/x-ndjson; charset=utf-8'

interface Sending {
  readonly form: RecordForm
  readonly codec: CodecPool
}

/** The one result of a request, as JSON, when it is there. */
export async function sendResult(
  reply: FastifyReply,
  { request, results }: Submission,
  sending: Sending,
): Promise<FastifyReply> {
  const stream = new ReplyStream(reply.raw, () => void results.return())
  try {
    const next = await results.next()
    if (next.done) return reply.hijack()
    reply.header(requestHeader, request.id)
    return await sendRollout(reply, next.value, sending)
  } finally {
    stream[Symbol.dispose]()
    await results.return()
  }
}

/** One rollout that has ended, as JSON. */
export async function sendRollout(
  reply: FastifyReply,
  settled: SettledRollout,
  { form, codec }: Sending,
): Promise<FastifyReply> {
  const text = replyText(settled, form, codec)
  if (typeof text === 'string') return await reply.type(jsonType).send(text)
  try {
    // Before the reply begins: what fails at once still gets its status.
    const first = await text.next()
    const request = reply.getHeader(requestHeader)
    reply.hijack()
    using stream = new ReplyStream(reply.raw)
    stream.begin({ 'content-type': jsonType, ...(typeof request === 'string' && { [requestHeader]: request }) })
    try {
      for (let chunk = first; !chunk.done; chunk = await text.next()) await stream.write(chunk.value)
      stream.end()
    } catch {
      stream.breakOff()
    }
    return reply
  } finally {
    await text.return()
  }
}

/** The results of a request as they end, a line of JSON each; if it is cut short, the last line says why. */
export async function sendResults(
  reply: FastifyReply,
  { request, results }: Submission,
  sending: Sending,
): Promise<FastifyReply> {
  reply.hijack()
  using stream = new ReplyStream(reply.raw, () => void results.return())
  stream.begin({ 'content-type': linesType, [requestHeader]: request.id })
  let isInLine = false
  try {
    for await (const settled of results) {
      isInLine = true
      await writeRollout(stream, settled, sending)
      isInLine = false
    }
    stream.end()
  } catch (error) {
    if (stream.isGone || isInLine) stream.breakOff()
    else {
      void stream.write(`${JSON.stringify(errorBody(error))}\n`)
      stream.end()
    }
  } finally {
    await results.return()
  }
  return reply
}

async function writeRollout(stream: ReplyStream, settled: SettledRollout, { form, codec }: Sending): Promise<void> {
  const text = replyText(settled, form, codec)
  if (typeof text === 'string') {
    await stream.write(`${text}\n`)
    return
  }
  for await (const chunk of text) await stream.write(chunk)
  await stream.write('\n')
}
