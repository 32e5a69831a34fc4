import { createHash, hash } from 'node:crypto'
import { bytesOf } from '../../kit/index.ts'
import type { MessageNode } from '../../schema/index.ts'
import type { WholeNodes } from './_rows-conversation.ts'

/** The number of replies that are remembered. A prompt that continues an older reply begins a conversation. */
const maxRemembered = 256

/** A prompt and its reply: a later prompt that begins with both is recognised by the digest. */
interface Said {
  readonly seq: number
  readonly length: number
  readonly digest: string
}

/**
 * Finds the reply that each prompt of SGLang's own API continues, by their nodes. Such a prompt is tokens, or one text:
 * there are no messages to compare. It continues the reply whose prompt and own tokens it begins with; of several, the
 * longest.
 */
export async function continuedPrompts(
  bareNodes: readonly MessageNode[],
  nodes: () => WholeNodes,
): Promise<ReadonlyMap<number, number>> {
  const before = new Map<number, number>()
  const due = new Set(bareNodes.filter(({ call }) => call?.api === 'generate').map(({ seq }) => seq))
  if (due.size < 2) return before
  // In order of age, oldest first.
  const said: Said[] = []
  for await (const { seq, tokens } of nodes()) {
    if (!due.delete(seq) || !tokens?.promptIds) continue
    const { promptIds, ids } = tokens
    const last = longestBeginning(promptIds, said)
    if (last) before.set(seq, last.seq)
    if (said.length === maxRemembered) said.shift()
    said.push({ seq, length: promptIds.length + ids.length, digest: digestOf(promptIds, ids) })
    if (due.size === 0) break
  }
  return before
}

/** The longest reply that the prompt begins with. The prompt is hashed only once, however many replies there are. */
function longestBeginning(prompt: Int32Array, said: readonly Said[]): Said | undefined {
  const reading = createHash('sha256')
  let read = 0
  let longest: Said | undefined
  let digest = ''
  for (const each of said.toSorted((one, other) => one.length - other.length)) {
    if (each.length > prompt.length) break
    if (each.length > read) {
      reading.update(bytesOf(prompt.subarray(read, each.length)))
      read = each.length
      digest = reading.copy().digest('base64')
    }
    if (each.digest === digest) longest = each
  }
  return longest
}

function digestOf(prompt: Int32Array, reply: Int32Array): string {
  return hash('sha256', Buffer.concat([bytesOf(prompt), bytesOf(reply)]), 'base64')
}
