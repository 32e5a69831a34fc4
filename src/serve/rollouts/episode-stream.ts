import type { FastifyReply } from 'fastify'
import { EventList, eventText, type OutputItem, repeatItem, responseFields, responsesServer } from '../../apis/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { rolloutId, type JsonObject } from '../../schema/index.ts'
import { replyItem } from '../codec/reply-items.ts'
import type { Submission } from '../requests/request-intake.ts'
import { episodeFailure, type EpisodeResponse, episodeResponse, settledRecord } from './episode-response.ts'
import type { RolloutService } from './rollout-service.ts'
import { leaveWhenGone, sendStream } from './send-rollouts.ts'

/** Clients and proxies give up on a stream without a byte for long. */
const beatMs = 15_000
const beat = ': at work\n\n'

const headers = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache',
  // A proxy that gathers a reply before it passes it on would undo all of this.
  'x-accel-buffering': 'no',
}

interface Streaming {
  /** The fields of the request that its response repeats. */
  readonly repeated: JsonObject
  readonly service: RolloutService
}

/** Sends the rollout of a request as a stream of Responses: each item once its turn is durable, and the whole episode at the end. */
export async function streamEpisode(reply: FastifyReply, submission: Submission, streaming: Streaming): Promise<void> {
  reply.hijack()
  const { results } = submission
  using _leaving = leaveWhenGone(reply.raw, results)
  try {
    await sendStream(reply.raw, headers, episodeEvents(submission, streaming))
  } finally {
    results.release()
  }
}

type Chunk = string | Uint8Array

async function* episodeEvents(
  { request, results }: Submission,
  { repeated, service }: Streaming,
): AsyncGenerator<Chunk, void, void> {
  const id = rolloutId(request.firstTask, 0)
  const running = service.runningEpisode(id)
  const events = new EventList()
  const written = (): string => events.take().map(eventText).join('')
  let count = 0
  const add = (items: Iterable<OutputItem>): void => {
    for (const item of items) repeatItem(events, replyItem(item as JsonObject), count++)
  }
  const fields = responseFields({
    id: running.responseId,
    model: service.model,
    createdAt: Math.floor(request.at / 1000),
  })
  const response = { ...fields, output: [], ...repeated }
  events.add('response.created', { response })
  events.add('response.in_progress', { response })
  yield written()
  try {
    using progress = new Progress(id, service)
    const result = results.next().finally(() => progress.end())
    // It may fail while the client takes nothing; it is awaited below.
    result.catch(() => {})
    for await (const attempt of progress) {
      if (attempt !== undefined) add(running.newItems(attempt))
      yield written() || beat
    }
    const { value: settled } = await result
    // The client has gone.
    if (!settled) return
    const record = settledRecord(settled, service)
    add(running.newItems(record.attempt))
    add(running.rest())
    yield written()
    const failure = episodeFailure(record)
    if (failure) throw failure
    yield* lastEvent(
      events.count,
      episodeResponse(record, { repeated: JSON.stringify(repeated), form: 'items' }, service),
    )
  } catch (error) {
    yield eventText(responsesServer.streamError(MillraceError.from(error, 'internal')))
  }
}

/** The event with the whole response, in pieces: its items may come from a codec thread. */
async function* lastEvent(
  sequence: number,
  { before, items, after, isCut }: EpisodeResponse,
): AsyncGenerator<Chunk, void, void> {
  const type = isCut ? 'response.incomplete' : 'response.completed'
  yield `event: ${type}\ndata: {"type":"${type}","sequence_number":${sequence},"response":${before}`
  if (typeof items === 'string') yield items
  else yield* items
  yield `${after}}\n\n`
}

/** The attempt of a rollout whenever it has said something new, and undefined if it has been silent for a while. */
class Progress implements Disposable {
  readonly #watch: Disposable
  #timer: NodeJS.Timeout
  #attempt: number | undefined
  #wake = Promise.withResolvers<void>()
  #hasEnded = false

  constructor(id: string, service: RolloutService) {
    this.#watch = service.watch(id, (attempt) => {
      this.#attempt = attempt
      this.#wake.resolve()
    })
    this.#timer = setInterval(() => this.#wake.resolve(), beatMs)
  }

  end(): void {
    this.#hasEnded = true
    this.#wake.resolve()
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<number | undefined, void, void> {
    for (;;) {
      await this.#wake.promise
      if (this.#hasEnded) return
      this.#wake = Promise.withResolvers()
      const attempt = this.#attempt
      this.#attempt = undefined
      this.#timer.refresh()
      yield attempt
    }
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer)
    this.#watch[Symbol.dispose]()
  }
}
