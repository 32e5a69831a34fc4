/** The entry of a thread that takes the tokens out of long replies. It keeps nothing between two replies. */
import { setPriority } from 'node:os'
import { serveJobs } from '../../kit/index.ts'
import type { DecodedReply } from './decode-pool.ts'
import { scanReply, type PromptReader } from '../../apis/index.ts'

type Pieces = readonly Uint8Array<ArrayBuffer>[]

lowerPriority()
await serveJobs<Pieces, DecodedReply>({ start: () => decode, errorCode: 'internal' })

function decode(pieces: Pieces): { value: DecodedReply; transfer: readonly ArrayBuffer[] } {
  const bytes = joined(pieces)
  const prompts = new PromptNote()
  const scanned = scanReply(bytes, prompts)
  // The next turn repeats this prompt. If the prompt is only a small part of the reply, knowing it would not spare that turn
  // a thread.
  const promptText = prompts.text.length * 2 >= bytes.length ? new Uint8Array(prompts.text) : undefined
  bytes.buffer.transfer(0)
  const { promptIds, ids, logprobs, routedExperts } = scanned.tokens
  const arrays = [promptIds, ids, logprobs, routedExperts?.experts, promptText].filter((array) => array !== undefined)
  return { value: { scanned, ...(promptText && { promptText }) }, transfer: arrays.map(({ buffer }) => buffer) }
}

/** A reader that knows no prompts, and keeps the text of the one that is read. */
class PromptNote implements PromptReader {
  text: Uint8Array = new Uint8Array()

  find(): undefined {
    return undefined
  }

  add(text: Uint8Array): void {
    this.text = text
  }
}

/** Joins the pieces and frees their memory at once: the collector would free it far too late. */
function joined(pieces: Pieces): Buffer<ArrayBuffer> {
  const bytes = Buffer.allocUnsafeSlow(pieces.reduce((sum, { length }) => sum + length, 0))
  let at = 0
  for (const piece of pieces) {
    bytes.set(piece, at)
    at += piece.length
  }
  for (const { buffer } of pieces) if (!buffer.detached) buffer.transfer(0)
  return bytes
}

/** If cores are scarce, the event loop goes first. Only on Linux does a thread have its own priority. */
function lowerPriority(): void {
  if (process.platform !== 'linux') return
  try {
    setPriority(5)
  } catch {
    // Not allowed in this sandbox: the thread works without it.
  }
}
