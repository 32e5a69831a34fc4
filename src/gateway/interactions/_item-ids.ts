import { isJsonObject, type ItemIds, type ItemKind } from '../../schema/index.ts'

interface OutputWire {
  readonly output?: unknown
  /** Where the last event of a stream has it. */
  readonly response?: unknown
}

interface ItemWire {
  readonly type?: unknown
  readonly id?: unknown
}

const kinds: Readonly<Record<string, ItemKind>> = { reasoning: 'rs', message: 'msg', function_call: 'fc' }

/** What a backend of Responses called the items of its reply, in a whole one or in the last event of a stream. */
export function itemIdsIn(document: object): ItemIds | undefined {
  const { output, response }: OutputWire = document
  if (!Array.isArray(output))
    return isJsonObject(response) ? itemIdsIn({ ...response, response: undefined }) : undefined
  const ids: Partial<Record<ItemKind, string[]>> = {}
  for (const item of output) {
    const { type, id }: ItemWire = isJsonObject(item) ? item : {}
    const kind = typeof type === 'string' ? kinds[type] : undefined
    // One without an id counts too: those after it are numbered.
    if (kind) (ids[kind] ??= []).push(typeof id === 'string' ? id : '')
  }
  return ids
}
