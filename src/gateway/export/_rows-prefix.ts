import { sameNumbers } from '../../kit/index.ts'
import type { TokenRecord } from '../../schema/index.ts'

/** The place where a prompt stops repeating the prompt and reply before it. */
export interface Split {
  /** The first token, counted from the start of the prompt before, that is not repeated. */
  readonly token: number
  /** `prompt`: the conversation before the reply was changed. `reply`: the reply itself came back as other tokens, or cut. */
  readonly within: 'prompt' | 'reply'
}

/** Compares a prompt with an earlier prompt and reply. Undefined if it begins with exactly these. */
export function splitBetween(
  earlier: Pick<TokenRecord, 'ids'> & { readonly promptIds: Int32Array },
  prompt: Int32Array,
): Split | undefined {
  const { promptIds, ids } = earlier
  const inPrompt = firstDifference(promptIds, prompt.subarray(0, promptIds.length))
  if (inPrompt !== undefined) return { token: inPrompt, within: 'prompt' }
  const inReply = firstDifference(ids, prompt.subarray(promptIds.length, promptIds.length + ids.length))
  return inReply === undefined ? undefined : { token: promptIds.length + inReply, within: 'reply' }
}

function firstDifference(expected: Int32Array, found: Int32Array): number | undefined {
  // Checked first, because they are nearly always equal.
  if (sameNumbers(expected, found)) return undefined
  const index = expected.findIndex((token, at) => token !== found[at])
  return index < 0 ? undefined : index
}
