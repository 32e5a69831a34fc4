/** The entry of a thread that takes the tokens out of long replies. It holds nothing between two of them. */
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
    // Whatever a server wrote, it must not cost the replies of others their thread.
    send({ kind: 'failed', job: question.job, error: MillraceError.from(error, 'internal').toWire() })
  }
})

function decode({ job, pieces }: DecodeJob): void {
  const startedAt = performance.now()
  const bytes = joined(pieces)
  const prompts = new PromptNote()
  const scanned = scanReply(bytes, prompts)
  // The next turn repeats it. Where it is little beside the rest, knowing it would spare nobody the hop to this thread.
  const promptText = prompts.text.length * 2 >= bytes.length ? new Uint8Array(prompts.text) : undefined
  bytes.buffer.transfer(0)
  const { promptIds, ids, logprobs, routedExperts } = scanned.tokens
  const arrays = [promptIds, ids, logprobs, routedExperts?.experts, promptText].filter((array) => array !== undefined)
  send(
    { kind: 'decoded', job, scanned, ...(promptText && { promptText }), workMs: performance.now() - startedAt },
    arrays.map((array) => array.buffer),
  )
}

/** Knows no prompts, and keeps where the one that is read stands. */
class PromptNote implements PromptReader {
  text: Uint8Array = new Uint8Array()

  find(): undefined {
    return undefined
  }

  add(text: Uint8Array): void {
    this.text = text
  }
}

/** Frees the memory of each piece at once: the collector would come for it far too late, and then look at everything. */
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

/** Where cores are scarce, the loop that a reply is for goes first. On Linux a priority is a thread's own; elsewhere it is the process's. */
function standBack(): void {
  if (process.platform !== 'linux') return
  try {
    setPriority(5)
  } catch {
    // Not allowed in this sandbox: it works all the same.
  }
}
