import type { BackendReply } from '../inference/index.ts'
import type { ClientApi } from '../schema/index.ts'

/** Marks on documents that a dialect wrote, for facts that no dialect has a field for. */

type Document = Record<string, unknown>

export function firstChoice({ choices }: Document): Document | undefined {
  const first: unknown = Array.isArray(choices) ? choices[0] : undefined
  return isDocument(first) ? first : undefined
}

/** Removes the tokens: the token fields of the imitated backend decide which of them a client sees, and how. */
export function withoutTokens({ tokens: _left, ...reply }: BackendReply): BackendReply {
  return reply
}

/** Marks a reply that the engine ended: where an API names the reason of an end, it becomes `abort`. */
export function markAborted(document: Document): void {
  const choice = firstChoice(document)
  if (typeof choice?.['finish_reason'] === 'string') choice['finish_reason'] = 'abort'
  for (const holder of [document, document['response'], document['delta']]) {
    if (!isDocument(holder)) continue
    if (typeof holder['stop_reason'] === 'string') holder['stop_reason'] = 'abort'
    if (isDocument(holder['incomplete_details'])) holder['incomplete_details'] = { reason: 'abort' }
  }
}

/** Puts the weights' version where SGLang puts it. Anthropic's API has no place for it. */
export function markVersion(api: ClientApi, document: Document, version: string): void {
  if (api === 'messages') return
  const holder = api === 'responses' && isDocument(document['response']) ? document['response'] : document
  const { metadata } = holder
  holder['metadata'] = { ...(isDocument(metadata) ? metadata : {}), weight_version: version }
}

function isDocument(value: unknown): value is Document {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
