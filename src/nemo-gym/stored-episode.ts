import { hash } from 'node:crypto'
import { basename } from 'node:path'
import type { Message, MessageNode, RolloutRecord } from '../schema/index.ts'
import { missingMessage, type RunReader } from '../store/index.ts'
import { EpisodeItems, episodeItems, itemPieces } from './episode-items.ts'

/** What the items of a rollout are named by. Rollouts of different runs have the same ids. */
export function episodeName(folder: string, rollout: string): string {
  return `${basename(folder)}/${rollout}`
}

/** The id of the response that is a whole episode. */
export function episodeResponseId(episode: string): string {
  return `resp_${hash('sha256', episode, 'hex').slice(0, 30)}`
}

/** The items of an ended rollout as a JSON list, in pieces: what came after its prompt, with tokens where they were captured. */
export function* storedItemPieces(reader: RunReader, rollout: string): Generator<string, void, void> {
  const result = reader.result(rollout)
  const path = result ? pathTo(result.leaf, reader.bareNodes(rollout, result.record.attempt), rollout) : undefined
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

/** The nodes of a conversation from its first sampled one on. Others were asked of the model beside it. */
function pathTo(leaf: number | null, nodes: Iterable<MessageNode>, rollout: string): ReadonlySet<number> {
  const bySeq = new Map(Array.from(nodes, ({ seq, parent, sampled }) => [seq, { parent, sampled }]))
  const path: { readonly seq: number; readonly sampled: boolean }[] = []
  for (let seq = leaf; seq !== null;) {
    const node = bySeq.get(seq)
    if (!node) throw missingMessage(rollout, seq)
    path.push({ seq, sampled: node.sampled })
    seq = node.parent
  }
  path.reverse()
  const first = path.findIndex(({ sampled }) => sampled)
  return new Set(first === -1 ? [] : path.slice(first).map(({ seq }) => seq))
}

/**
 * The same from a record in memory, without tokens. Undefined if it cannot tell where the prompt ends: replies in it look like
 * the model's own.
 */
export function recordItems(
  { messages, turns }: Pick<RolloutRecord, 'messages' | 'turns'>,
  episode: string,
): string | undefined {
  const isReply = ({ role }: Message): boolean => role === 'assistant'
  if (messages.filter(isReply).length !== turns) return undefined
  const first = messages.findIndex(isReply)
  const { items } = episodeItems(episode, first === -1 ? [] : messages.slice(first).map((message) => ({ message })))
  return `[${items.map(({ item }) => JSON.stringify(item)).join(',')}]`
}
