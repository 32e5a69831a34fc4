import { isJsonObject, type ItemIds, type ItemKind } from '../../schema/index.ts'

interface OutputWire {
  readonly output?: unknown
  /** The reply's document, in the last event of a stream. */
  readonly response?: unknown
}

interface ItemWire {
  readonly type?: unknown
  readonly id?: unknown
}

const kinds: Readonly<Record<string, ItemKind>> = { reasoning: 'rs', message: 'msg', function_call: 'fc' }

/** The backend's ids of a Responses reply's items, from a whole reply or the last event of a stream. */
export function itemIdsIn(document: object): ItemIds | undefined {
  const { output, response }: OutputWire = document
  const items = output ?? (isJsonObject(response) ? response['output'] : undefined)
  if (!Array.isArray(items)) return undefined
  const ids: Partial<Record<ItemKind, string[]>> = {}
  for (const item of items) {
    const { type, id }: ItemWire = isJsonObject(item) ? item : {}
    const kind = typeof type === 'string' ? kinds[type] : undefined
    // Items without an id count, too, because items are found by their number.
    if (kind) (ids[kind] ??= []).push(typeof id === 'string' ? id : '')
  }
  return ids
}
