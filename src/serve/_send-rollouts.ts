import type { FastifyReply } from 'fastify'
import { errorBody } from './_door-error.ts'
import { ReplyStream } from './_reply-stream.ts'
import { replyText } from './_reply-text.ts'
import type { RecordForm } from './codec-messages.ts'
import type { CodecPool } from './codec-pool.ts'
import type { KnownRequest } from './known-request.ts'
import type { SettledRollout } from './result-reader.ts'
import type { Submission } from './_request-intake.ts'

/** Which request a reply belongs to, and the index of its first task: `task.index` less that is the row of the request. */
export function requestHeaders({ id, firstTask }: KnownRequest): Record<string, string> {
  return { 'millrace-request': id, 'millrace-first-task': String(firstTask) }
}

const jsonType = 'application/json; charset=utf-8'
const linesType = 'application/x-ndjson; charset=utf-8'

interface Sending {
  readonly form: RecordForm
  readonly codec: CodecPool
  readonly headers?: Readonly<Record<string, string>>
}

/** The one result of a request, as JSON, when it is there. */
export async function sendResult(
  reply: FastifyReply,
  { request, results }: Submission,
  sending: Sending,
): Promise<void> {
  const stream = new ReplyStream(reply.raw, () => void results.return())
  try {
    const next = await results.next()
    if (next.done) reply.hijack()
    else await sendRollout(reply, next.value, { ...sending, headers: requestHeaders(request) })
  } finally {
    stream[Symbol.dispose]()
    results.release()
  }
}

/** One rollout that has ended, as JSON. */
export async function sendRollout(
  reply: FastifyReply,
  settled: SettledRollout,
  { form, codec, headers }: Sending,
): Promise<void> {
  const text = replyText(settled, form, codec)
  if (typeof text === 'string') {
    // Past fastify, which looks at a reply in more ways than one that is text needs.
    const length = Buffer.byteLength(text)
    reply.raw.writeHead(200, { ...headers, 'content-type': jsonType, 'content-length': length })
    reply.hijack()
    reply.raw.end(text)
    return
  }
  try {
    // Before the reply begins: what fails at once still gets its status.
    const first = await text.next()
    reply.hijack()
    using stream = new ReplyStream(reply.raw)
    stream.begin({ ...headers, 'content-type': jsonType })
    try {
      for (let chunk = first; !chunk.done; chunk = await text.next()) await stream.write(chunk.value)
      stream.end()
    } catch {
      stream.breakOff()
    }
  } finally {
    await text.return()
  }
}

/** The results of a request as they end, a line of JSON each; if it is cut short, the last line says why. */
export async function sendResults(
  reply: FastifyReply,
  { request, results }: Submission,
  sending: Sending,
): Promise<void> {
  reply.hijack()
  using stream = new ReplyStream(reply.raw, () => void results.return())
  stream.begin({ ...requestHeaders(request), 'content-type': linesType })
  const line = { isBegun: false }
  try {
    // Not `for await`, which would leave the results as if the client had gone when it is we who fail.
    for (let next = await results.next(); !next.done; next = await results.next()) {
      await writeLine(stream, replyText(next.value, sending.form, sending.codec), line)
    }
    stream.end()
  } catch (error) {
    if (stream.isGone || line.isBegun) stream.breakOff()
    else {
      void stream.write(`${JSON.stringify(errorBody(error))}\n`)
      stream.end()
    }
  } finally {
    // If the client has gone, they were left already.
    results.release()
  }
}

async function writeLine(
  stream: ReplyStream,
  text: ReturnType<typeof replyText>,
  line: { isBegun: boolean },
): Promise<void> {
  if (typeof text === 'string') {
    await stream.write(`${text}\n`)
    return
  }
  for await (const chunk of text) {
    line.isBegun = true
    await stream.write(chunk)
  }
  await stream.write('\n')
  line.isBegun = false
}
