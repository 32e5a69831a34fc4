import { isJsonList, type JsonObject } from '../schema/index.ts'

interface BlockPieces {
  readonly begun: JsonObject
  readonly deltas: readonly JsonObject[]
}

/** A whole block as the pieces of a stream: an empty block, then its deltas. A block of an unknown kind begins whole. */
export function blockPieces(block: JsonObject): BlockPieces {
  const { type, text, thinking, signature, citations, input } = block
  if (type === 'text') {
    const cited = isJsonList(citations) ? citations : []
    const deltas = cited.map((citation) => ({ type: 'citations_delta', citation }))
    const begun = { ...block, text: '', ...(cited.length > 0 && { citations: [] }) }
    return { begun, deltas: [{ type: 'text_delta', text }, ...deltas] }
  }
  if (type === 'thinking') {
    const signed = { type: 'signature_delta', signature }
    return { begun: { ...block, thinking: '', signature: '' }, deltas: [{ type: 'thinking_delta', thinking }, signed] }
  }
  if (input === undefined) return { begun: block, deltas: [] }
  return {
    begun: { ...block, input: {} },
    deltas: [{ type: 'input_json_delta', partial_json: JSON.stringify(input) }],
  }
}
