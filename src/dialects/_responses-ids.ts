import type { ItemKind } from '../schema/index.ts'
import type { ItemOrigin, ReplyHead } from './server-dialect.ts'

const replyPrefix = 'resp_'

/** Ids of our own items. `newReplyId` writes 30 digits; OpenAI and vLLM write more, so their ids are not taken for ours. */
const ownItemId = /^(rs|msg|fc)_([0-9a-f]{30})(?:_(\d{1,4}))?$/

/**
 * The id of an item: its reply's id with another prefix, and a number if there may be several items of its kind. A client
 * that sends items back, or only their ids, thereby says which reply they are from.
 */
function itemId(kind: ItemKind, replyId: string, number?: number): string {
  const own = replyId.startsWith(replyPrefix) ? replyId.slice(replyPrefix.length) : replyId
  return number === undefined ? `${kind}_${own}` : `${kind}_${own}_${number}`
}

/** The id of an item of a reply: the backend's own, if it has one for the item. */
export function itemName({ id, itemIds }: ReplyHead, kind: ItemKind, number?: number): string {
  return itemIds?.[kind]?.[number ?? 0] || itemId(kind, id, number)
}

/** The reply that an item of ours is from; undefined if its id is not ours. */
export function itemOrigin(id: unknown): ItemOrigin | undefined {
  const match = typeof id === 'string' ? ownItemId.exec(id) : null
  if (!match) return undefined
  const [, kind, own, number = '0'] = match
  if (kind !== 'rs' && kind !== 'msg' && kind !== 'fc') return undefined
  return { replyId: `${replyPrefix}${own}`, kind, number: Number(number) }
}
