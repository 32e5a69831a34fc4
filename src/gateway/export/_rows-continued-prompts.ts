import { createHash, hash } from 'node:crypto'
import type { MessageNode } from '../../schema/index.ts'
import type { WholeNodes } from './_rows-conversation.ts'

/** A prompt that goes on from a reply older than these begins a conversation. */
const maxRemembered = 256

/** A reply together with its prompt, by which a later prompt that begins with both is known. */
interface Said {
  readonly seq: number
  readonly length: number
  readonly digest: string
}

/**
 * Which reply each prompt of SGLang's own API goes on from, by their nodes. Such a prompt is tokens, or one text: there are
 * no messages to compare, so it is the reply whose prompt and own tokens the prompt begins with; of several the longest.
 */
export async function continuedPrompts(
  bareNodes: readonly MessageNode[],
  nodes: () => WholeNodes,
): Promise<ReadonlyMap<number, number>> {
  const before = new Map<number, number>()
  const due = new Set(bareNodes.filter(({ call }) => call?.api === 'generate').map(({ seq }) => seq))
  if (due.size < 2) return before
  // The oldest first.
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

/** Reads the prompt once, however many there are to compare it with. */
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

function bytesOf({ buffer, byteOffset, byteLength }: Int32Array): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength)
}
