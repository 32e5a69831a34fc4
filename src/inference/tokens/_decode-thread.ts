/** The entry of a thread that takes the tokens out of long replies. It keeps nothing between two replies. */
import { setPriority } from 'node:os'
import { parentPort } from 'node:worker_threads'
import { MillraceError } from '../../errors/index.ts'
import type { DecodeAnswer, DecodeJob, ToDecodeThread } from './decode-messages.ts'
import { scanReply, type PromptReader } from './token-scanner.ts'

if (!parentPort) throw new MillraceError('internal', 'this file is the entry of a decode thread')
const port = parentPort
standBack()

const send = (answer: DecodeAnswer, given: ArrayBuffer[] = []): void => port.postMessage(answer, given)

port.on('message', (question: ToDecodeThread) => {
  if (question === 'close') {
    port.close()
    return
  }
  try {
    decode(question)
  } catch (error) {
    // A reply that cannot be decoded must not end the thread, which works on other replies too.
    send({ kind: 'failed', job: question.job, error: MillraceError.from(error, 'internal').toWire() })
  }
})

function decode({ job, pieces }: DecodeJob): void {
  const startedAt = performance.now()
  const bytes = joined(pieces)
  const prompts = new PromptNote()
  const scanned = scanReply(bytes, prompts)
  // The next turn repeats this prompt. If the prompt is only a small part of the reply, knowing it would not spare that turn
  // a thread.
  const promptText = prompts.text.length * 2 >= bytes.length ? new Uint8Array(prompts.text) : undefined
  bytes.buffer.transfer(0)
  const { promptIds, ids, logprobs, routedExperts } = scanned.tokens
  const arrays = [promptIds, ids, logprobs, routedExperts?.experts, promptText].filter((array) => array !== undefined)
  send(
    { kind: 'decoded', job, scanned, ...(promptText && { promptText }), workMs: performance.now() - startedAt },
    arrays.map((array) => array.buffer),
  )
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

/**
 * Joins the pieces and frees their memory at once: the collector would free it far too late, and with a search of the whole
 * heap.
 */
function joined(pieces: readonly Uint8Array<ArrayBuffer>[]): Buffer<ArrayBuffer> {
  const bytes = Buffer.allocUnsafeSlow(pieces.reduce((sum, { length }) => sum + length, 0))
  let at = 0
  for (const piece of pieces) {
    bytes.set(piece, at)
    at += piece.length
  }
  for (const { buffer } of pieces) if (!buffer.detached) buffer.transfer(0)
  return bytes
}

/**
 * Lowers this thread's priority: if cores are scarce, the event loop goes first. Only on Linux does a thread have its own
 * priority.
 */
function standBack(): void {
  if (process.platform !== 'linux') return
  try {
    setPriority(5)
  } catch {
    // Not allowed in this sandbox: the thread works without it.
  }
}
