import { hash } from 'node:crypto'
import { basename } from 'node:path'
import type { OutputItem } from '../apis/index.ts'
import type { Message, MessageNode, RolloutRecord } from '../schema/index.ts'
import { missingMessage, type RunReader } from '../store/index.ts'
import { EpisodeItems, episodeItems, type EpisodeMessage, itemPieces } from './episode-items.ts'

/** What the items of a rollout are named by. Rollouts of different runs have the same ids. */
export function episodeName(folder: string, rollout: string): string {
  return `${basename(folder)}/${rollout}`
}

/** The id of the response that is a whole episode. */
export function episodeResponseId(episode: string): string {
  return `resp_${hash('sha256', episode, 'hex').slice(0, 30)}`
}

interface StoredEnd {
  readonly leaf: number | null
  readonly record: Pick<RolloutRecord, 'promptLength'>
}

/** The items of an ended rollout as a JSON list, in pieces: what came after its prompt, with tokens where they were captured. */
export function* storedItemPieces(reader: RunReader, rollout: string): Generator<string, void, void> {
  const result = reader.result(rollout)
  const path = result ? pathTo(result, reader.bareNodes(rollout, result.record.attempt), rollout) : undefined
  yield '['
  if (result && path) {
    const items = new EpisodeItems(episodeName(reader.folder, rollout))
    let separator = ''
    for (const node of reader.eachNode(rollout, result.record.attempt)) {
      if (!path.has(node.seq)) continue
      for (const item of items.next(node)) {
        yield separator
        yield* itemPieces(item)
        separator = ','
      }
    }
  }
  yield ']'
}

/**
 * The items of a rollout that still runs, as its messages become durable. They have no tokens: whether these are contiguous is known
 * at the end. Messages that leave the conversation, to ask the model beside it or after its history was rewritten, are left out.
 */
export class RunningEpisode {
  readonly responseId: string
  readonly #reader: RunReader
  readonly #rollout: string
  readonly #episode: string
  #attempt: number | undefined
  #items: EpisodeItems
  #next = 0
  #leaf: number | null = null
  #hasBegun = false
  /** Until it has begun: what came after the last message of the user. */
  #unsampled: EpisodeMessage[] = []

  constructor(reader: RunReader, rollout: string) {
    this.#reader = reader
    this.#rollout = rollout
    this.#episode = episodeName(reader.folder, rollout)
    this.responseId = episodeResponseId(this.#episode)
    this.#items = new EpisodeItems(this.#episode)
  }

  /** Those that were not there before. A new attempt begins anew. */
  *newItems(attempt: number): Generator<OutputItem, void, void> {
    if (attempt !== this.#attempt) this.#begin(attempt)
    for (;;) {
      const node = this.#reader.bareNode(this.#rollout, attempt, this.#next)
      if (!node) return
      this.#next += 1
      if (node.parent !== this.#leaf) continue
      this.#leaf = node.seq
      if (node.sampled) yield* this.rest()
      if (this.#hasBegun) for (const { item } of this.#items.next(node)) yield item
      else if (isGiven(node.message)) this.#unsampled = []
      else this.#unsampled.push(node)
    }
  }

  /** What was held back because it could have been a part of the prompt. */
  *rest(): Generator<OutputItem, void, void> {
    this.#hasBegun = true
    for (const node of this.#unsampled.splice(0)) for (const { item } of this.#items.next(node)) yield item
  }

  #begin(attempt: number): void {
    this.#attempt = attempt
    this.#items = new EpisodeItems(this.#episode)
    this.#next = 0
    this.#leaf = null
    this.#hasBegun = false
    this.#unsampled = []
  }
}

/** Whether a message is the user's, or the environment's. */
function isGiven({ role }: Message): boolean {
  return role === 'user' || role === 'system'
}

/** The nodes of a conversation after its prompt. Others were asked of the model beside it. */
function pathTo({ leaf, record }: StoredEnd, nodes: Iterable<MessageNode>, rollout: string): ReadonlySet<number> {
  const bySeq = new Map(
    Array.from(nodes, ({ seq, parent, message }) => [seq, { parent, isReply: message.role === 'assistant' }]),
  )
  const path: { readonly seq: number; readonly isReply: boolean }[] = []
  for (let seq = leaf; seq !== null;) {
    const node = bySeq.get(seq)
    if (!node) throw missingMessage(rollout, seq)
    path.push({ seq, isReply: node.isReply })
    seq = node.parent
  }
  path.reverse()
  const first = record.promptLength ?? path.findIndex(({ isReply }) => isReply)
  return new Set(first === -1 ? [] : path.slice(first).map(({ seq }) => seq))
}

/** The same from a record in memory, without tokens. */
export function recordItems(
  { messages, promptLength }: Pick<RolloutRecord, 'messages' | 'promptLength'>,
  episode: string,
): string {
  const first = promptLength ?? messages.findIndex(({ role }) => role === 'assistant')
  const { items } = episodeItems(episode, first === -1 ? [] : messages.slice(first).map((message) => ({ message })))
  return `[${items.map(({ item }) => JSON.stringify(item)).join(',')}]`
}
