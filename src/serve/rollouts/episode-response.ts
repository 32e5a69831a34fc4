import type { FastifyReply } from 'fastify'
import { responseFields } from '../../apis/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { peekFirst } from '../../kit/index.ts'
import { episodeName, episodeResponseId, recordItems } from '../../nemo-gym/index.ts'
import { outcomes, type RolloutRecord } from '../../schema/index.ts'
import { type ItemForm, replyItemText } from '../codec/reply-items.ts'
import type { SettledRollout } from '../requests/active-request.ts'
import type { RolloutService } from './rollout-service.ts'
import { jsonType, sendStream } from './send-rollouts.ts'

/** More is written on a codec thread. */
const maxInlineCharacters = 128 * 1024

/** An episode's response in parts: `items` is the list within it, as text or in chunks from a codec thread. */
export interface EpisodeResponse {
  readonly before: string
  readonly items: string | AsyncGenerator<Uint8Array<ArrayBuffer>, void, void>
  readonly after: string
  /** Whether the policy was cut off by a limit of tokens. */
  readonly isCut: boolean
}

interface EpisodeForm {
  /** JSON of the fields of the request that the response repeats. */
  readonly repeated: string
  readonly form: ItemForm
  /** Why the rollout failed: its response is none that is complete. */
  readonly failure?: string | undefined
}

/** The whole of a rollout as one object of Responses. */
export function episodeResponse(
  record: RolloutRecord,
  { repeated, form, failure }: EpisodeForm,
  service: RolloutService,
): EpisodeResponse {
  const { folder } = service.info
  const episode = episodeName(folder, record.id)
  const isCut = record.outcome === 'max_tokens' || record.outcome === 'context_length'
  const fields = responseFields(
    { id: episodeResponseId(episode), model: record.model, createdAt: Math.floor(record.timing.startedAt / 1000) },
    { finishReason: isCut ? 'length' : 'stop', usage: record.usage },
  )
  // Of the codes that OpenAI's clients know, the one that says least.
  const failed = failure !== undefined && { status: 'failed', error: { code: 'server_error', message: failure } }
  return {
    before: `${JSON.stringify({ ...fields, ...failed }).slice(0, -1)},${repeated.slice(1, -1)},"output":`,
    items:
      (service.capturesTokens ? undefined : inlineItems(record, episode, form)) ??
      service.codec.encode(record.id, form),
    after: '}',
    isCut,
  }
}

function inlineItems(record: RolloutRecord, episode: string, form: ItemForm): string | undefined {
  const characters = record.messages.reduce((sum, { content }) => sum + (content?.length ?? 0), 0)
  if (characters > maxInlineCharacters) return undefined
  const items = recordItems(record, episode)
  return form === 'items' ? replyItemText(items) : items
}

export async function sendEpisode(reply: FastifyReply, { before, items, after }: EpisodeResponse): Promise<void> {
  if (typeof items === 'string') {
    await reply.type('application/json').send(before + items + after)
    return
  }
  // Before the reply begins: what fails at once still gets its status.
  await using chunks = await peekFirst(items)
  reply.hijack()
  await sendStream(reply.raw, { 'content-type': jsonType }, around(before, chunks, after))
}

async function* around(
  before: string,
  chunks: AsyncIterable<Uint8Array>,
  after: string,
): AsyncGenerator<string | Uint8Array, void, void> {
  yield before
  yield* chunks
  yield after
}

/** The record of a rollout that has ended, also if it is no longer at hand. */
export function settledRecord({ id, record }: SettledRollout, service: RolloutService): RolloutRecord {
  const found = record ?? service.record(id)
  if (found) return found
  throw new MillraceError('internal', `rollout ${id} has ended and is not in the store; please report this`)
}

/** Why the agent has no answer; undefined if it has one. */
export function episodeFailure({ outcome, error }: RolloutRecord): MillraceError | undefined {
  if (outcomes[outcome].scored) return undefined
  const wire = error ?? { code: 'internal', message: `the rollout ended as ${outcome}` }
  return MillraceError.fromWire(wire)
}
