import { memoryPieces, numberPieces } from '../kit/index.ts'
import type { MessageNode, TokenRecord } from '../schema/index.ts'

/** How the token arrays of a node are written: as lists of numbers, or their memory as base64, a third of the size. */
export type ArrayForm = 'numbers' | 'base64'

/** One node as JSON, in pieces: its tokens may be many. */
export function* nodePieces({ tokens, ...node }: MessageNode, form: ArrayForm): Generator<string, void, void> {
  const json = JSON.stringify(node)
  if (!tokens) {
    yield json
    return
  }
  yield `${json.slice(0, -1)},"tokens":{`
  yield* tokenPieces(tokens, form === 'numbers' ? numberPieces : memoryPieces)
  yield '}}'
}

function* tokenPieces(
  { ids, logprobs, promptIds, version, versionSpans, routedExperts }: TokenRecord,
  arrayPieces: (numbers: Int32Array | Float32Array) => Iterable<string>,
): Generator<string, void, void> {
  yield '"ids":'
  yield* arrayPieces(ids)
  yield ',"logprobs":'
  yield* arrayPieces(logprobs)
  if (promptIds) {
    yield ',"promptIds":'
    yield* arrayPieces(promptIds)
  }
  if (version !== undefined) yield `,"version":${JSON.stringify(version)}`
  if (versionSpans) yield `,"versionSpans":${JSON.stringify(versionSpans)}`
  if (routedExperts) {
    // Never as a list of numbers, which would be the longest part by far.
    yield ',"routedExperts":'
    yield* memoryPieces(routedExperts.experts, routedExperts.shape)
  }
}
