import type { ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { FastifyReply } from 'fastify'
import { messageJson } from '../../apis/index.ts'
import { peekFirst } from '../../kit/index.ts'
import { binaryFrame, binaryHead, type GroupOptions, noRows, type RowCounts } from '../../rows/index.ts'
import { taskOf, type RolloutRecord } from '../../schema/index.ts'
import type { CodecPool } from '../codec/codec-pool.ts'
import type { RecordForm } from '../codec/rollout-json.ts'
import { errorBody } from '../http/errors.ts'
import type { SettledRollout } from '../requests/active-request.ts'
import type { KnownRequest } from '../requests/known-request.ts'
import type { Submission } from '../requests/request-intake.ts'

/** Which request a reply belongs to, and the index of its first task: `task.index` less that is the row of the request. */
export function requestHeaders({ id, firstTask }: KnownRequest): Record<string, string> {
  return { 'millrace-request': id, 'millrace-first-task': String(firstTask) }
}

export const jsonType = 'application/json; charset=utf-8'
const linesType = 'application/x-ndjson; charset=utf-8'
export const rowsType = 'application/vnd.millrace.rows'
/** A client that takes nothing for so long is disconnected: its reply holds a place on a codec thread. */
const maxStallMs = 60_000
/** A longer reply is written on a codec thread. Its messages were written once already, for the journal: this much is copied. */
const maxInlineCharacters = 128 * 1024

interface Sending {
  readonly form: RecordForm
  readonly codec: CodecPool
  readonly headers?: Readonly<Record<string, string>>
}

type Chunk = string | Uint8Array

export async function sendResult(
  reply: FastifyReply,
  { request, results }: Submission,
  sending: Sending,
): Promise<void> {
  using _leaving = leaveWhenGone(reply.raw, results)
  try {
    const next = await results.next()
    if (next.done) reply.hijack()
    else await sendRollout(reply, next.value, { ...sending, headers: requestHeaders(request) })
  } finally {
    results.release()
  }
}

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
  // Before the reply begins: what fails at once still gets its status.
  await using chunks = await peekFirst(text)
  reply.hijack()
  await sendStream(reply.raw, { ...headers, 'content-type': jsonType }, chunks)
}

/** The results of a request as they end, a line of JSON each; if it is cut short, the last line says why. */
export async function sendResults(
  reply: FastifyReply,
  { request, results }: Submission,
  sending: Sending,
): Promise<void> {
  reply.hijack()
  using _leaving = leaveWhenGone(reply.raw, results)
  const headers = { ...requestHeaders(request), 'content-type': linesType }
  await sendStream(reply.raw, headers, resultLines(results, sending))
}

async function* resultLines(
  results: Submission['results'],
  { form, codec }: Sending,
): AsyncGenerator<Chunk, void, void> {
  let isWithinLine = false
  try {
    // Not `for await`, which would leave the results as if the client had gone when it is we who fail.
    for (let next = await results.next(); !next.done; next = await results.next()) {
      const text = replyText(next.value, form, codec)
      if (typeof text === 'string') {
        yield `${text}\n`
        continue
      }
      for await (const chunk of text) {
        isWithinLine = true
        yield chunk
      }
      yield '\n'
      isWithinLine = false
    }
  } catch (error) {
    if (isWithinLine) throw error
    yield `${JSON.stringify(errorBody(error))}\n`
  } finally {
    // If the client has gone, they were left already.
    results.release()
  }
}

interface SendingRows {
  readonly rows: Omit<GroupOptions, 'task'>
  readonly codec: CodecPool
}

/** The rows of a request, group by group as they end, and their counts; if it is cut short, the last row says why. */
export async function sendRows(
  reply: FastifyReply,
  { request, results }: Submission,
  sending: SendingRows,
): Promise<void> {
  reply.hijack()
  using _leaving = leaveWhenGone(reply.raw, results)
  const headers = { ...requestHeaders(request), 'content-type': rowsType }
  await sendStream(reply.raw, headers, rowFrames(request, results, sending))
}

async function* rowFrames(
  { attempts }: KnownRequest,
  results: Submission['results'],
  { rows, codec }: SendingRows,
): AsyncGenerator<Chunk, void, void> {
  const ended = new Map<number, number>()
  const sums = { ...noRows }
  let isWithinFrame = false
  try {
    // Groups have heads of their own, but there may be none before an error.
    yield binaryHead
    for (let next = await results.next(); !next.done; next = await results.next()) {
      const task = taskOf(next.value.id)
      const count = (ended.get(task) ?? 0) + 1
      ended.set(task, count)
      if (count < attempts) continue
      ended.delete(task)
      await using chunks = codec.rows({ ...rows, task })
      const first = await chunks.next()
      isWithinFrame = true
      if (!first.done) yield first.value
      const counts = first.done ? first.value : yield* chunks
      isWithinFrame = false
      for (const name of Object.keys(sums) as (keyof RowCounts)[]) sums[name] += counts[name]
    }
    yield binaryFrame({ kind: 'end', ...sums })
  } catch (error) {
    if (isWithinFrame) throw error
    yield binaryFrame({ kind: 'error', error: errorBody(error).error })
  } finally {
    results.release()
  }
}

/** Leaves the results when the client goes, also while the next one is awaited. */
export function leaveWhenGone(response: ServerResponse, results: Submission['results']): Disposable {
  const leave = (): void => void results.return()
  // It may have gone while its request was being accepted.
  if (response.destroyed) leave()
  else response.once('close', leave)
  return { [Symbol.dispose]: () => void response.off('close', leave) }
}

/** Ends when all is sent or the client has gone. If the chunks fail, the reply is broken off: it must not look complete. */
export async function sendStream(
  response: ServerResponse,
  headers: Readonly<Record<string, string>>,
  chunks: AsyncIterable<Chunk>,
): Promise<void> {
  response.writeHead(200, headers)
  response.flushHeaders()
  response.setTimeout(maxStallMs, () => {
    // Nothing moves, but not because of us.
    if (response.writableLength > 0) response.destroy()
  })
  await pipeline(Readable.from(chunks), response).catch(() => {})
}

/** A settled rollout as JSON: text if it is small and at hand, else chunks that another thread makes of what is stored. */
function replyText(
  { id, record }: SettledRollout,
  form: RecordForm,
  codec: CodecPool,
): string | AsyncGenerator<Uint8Array<ArrayBuffer>, void, void> {
  const text = record && form === 'record' ? smallText(record) : undefined
  return text ?? codec.encode(id, form)
}

function smallText({ messages, ...head }: RolloutRecord): string | undefined {
  const texts = messages.map(messageJson)
  let characters = 0
  for (const text of texts) characters += text.length
  if (characters > maxInlineCharacters) return undefined
  return `${JSON.stringify(head).slice(0, -1)},"messages":[${texts.join(',')}]}`
}
