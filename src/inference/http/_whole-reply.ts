import { isUtf8 } from 'node:buffer'
import type { MillraceError } from '../../errors/index.ts'
import type { BackendReply } from '../backend.ts'
import { decodePool, offLoopBytes } from '../tokens/decode-pool.ts'
import type { PromptMemory } from '../tokens/prompt-memory.ts'
import type { ReplyBytes } from '../tokens/reply-bytes.ts'
import { worthScanningBytes, type ScannedReply, type TokenArrays } from '../tokens/token-scanner.ts'
import { brokenText, notJson, truncatedReply } from '../wire/broken-reply.ts'
import type { AnswerContext, AnswerReader } from '../wire/dialect.ts'
import { isObject } from '../wire/foreign-json.ts'
import type { Source } from '../wire/source.ts'

/** What a reply that is not streamed is read with. */
export interface WholeReading {
  readonly source: Source
  readonly dialect: AnswerReader
  readonly prompts: PromptMemory
  readonly sessionId: string
  readonly context: AnswerContext
  readonly wantsTokens: boolean
  /** Whether the reply is also returned as the server wrote it. */
  readonly keepsRaw: boolean
}

/** Whether a body has tokens that take so long to read that a thread should do it. */
export function isForThread(body: ReplyBytes, { prompts, sessionId, wantsTokens }: WholeReading): boolean {
  if (!wantsTokens) return false
  const excess = body.length - offLoopBytes
  // The part of the body that repeats a known prompt need not be read.
  const isShort = excess < 0 || prompts.knownBytes(sessionId, body, excess) > excess
  return !isShort && decodePool.accepts(body.length)
}

/** Has a thread take the tokens out of a body, which is given away. Rejects if the thread is lost. */
export async function scanOnThread(
  body: ReplyBytes,
  { prompts, sessionId }: Pick<WholeReading, 'prompts' | 'sessionId'>,
): Promise<ScannedReply> {
  const { scanned, promptText } = await decodePool.decode(body.give())
  const { promptIds } = scanned.tokens
  if (promptText && promptIds) prompts.learn(sessionId, promptText, promptIds)
  return scanned
}

/** Reads a body on this thread. */
export function readWhole(bytes: Buffer, reading: WholeReading): BackendReply {
  const { prompts, sessionId, wantsTokens } = reading
  if (wantsTokens && bytes.length >= worthScanningBytes) return readScanned(prompts.scan(sessionId, bytes), reading)
  if (!isUtf8(bytes)) throw brokenText(reading.source)
  return parse(bytes.toString('utf8'), undefined, reading)
}

/** Reads what is left of a body without its tokens. */
export function readScanned({ rest, tokens, isBroken }: ScannedReply, reading: WholeReading): BackendReply {
  if (isBroken) throw brokenText(reading.source)
  return parse(rest, tokens, reading)
}

function parse(text: string, tokens: TokenArrays | undefined, reading: WholeReading): BackendReply {
  const { source, dialect, context, keepsRaw } = reading
  const document = parseReply(text, source)
  const reply = dialect.parse(document, context, tokens, text)
  return keepsRaw && isObject(document) ? { ...reply, raw: { text, document } } : reply
}

function parseReply(text: string, source: Source): unknown {
  try {
    return JSON.parse(text)
  } catch {
    // A connection that closes early can look like a regular end; the JSON then stops in the middle.
    throw text.trimEnd().endsWith('}') ? notJson(source, 'it', text) : cutOrForeign(text, source)
  }
}

function cutOrForeign(text: string, source: Source): MillraceError {
  const start = text.trimStart()
  if (start === '' || start.startsWith('{')) return truncatedReply(source, `${text.length} characters arrived`)
  return notJson(source, 'it', start)
}
