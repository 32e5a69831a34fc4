import type { ItemKind } from '../schema/index.ts'
import type { ItemOrigin, ReplyHead } from './server-dialect.ts'

const replyPrefix = 'resp_'

/** `newReplyId` writes 30 digits; OpenAI and vLLM write more, so that theirs are not taken for ours. */
const ownItemId = /^(rs|msg|fc)_([0-9a-f]{30})(?:_(\d{1,4}))?$/

/**
 * The id of an item: that of its reply with another prefix, and a number where there may be several. So a client that
 * sends items back, or only their ids, also says which reply they are from.
 */
function itemId(kind: ItemKind, replyId: string, number?: number): string {
  const own = replyId.startsWith(replyPrefix) ? replyId.slice(replyPrefix.length) : replyId
  return number === undefined ? `${kind}_${own}` : `${kind}_${own}_${number}`
}

/** The id of an item of a reply: the backend's, if it has told the client one. */
export function itemName({ id, itemIds }: ReplyHead, kind: ItemKind, number?: number): string {
  return itemIds?.[kind]?.[number ?? 0] || itemId(kind, id, number)
}

/** Undefined for an id that somebody else made. */
export function itemOrigin(id: unknown): ItemOrigin | undefined {
  const match = typeof id === 'string' ? ownItemId.exec(id) : null
  if (!match) return undefined
  const [, kind, own, number = '0'] = match
  if (kind !== 'rs' && kind !== 'msg' && kind !== 'fc') return undefined
  return { replyId: `${replyPrefix}${own}`, kind, number: Number(number) }
}
