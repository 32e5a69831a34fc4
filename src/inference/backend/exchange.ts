import { isUtf8 } from 'node:buffer'
import type { Dispatcher } from 'undici'
import {
  type AnswerContext,
  type ReplyParser,
  type BackendReply,
  invalidUtf8,
  lostReply,
  notJson,
  oversizedReply,
  packedReply,
  readReportedError,
  type ReplySink,
  reportedError,
  type ScannedReply,
  type Source,
  type StreamAssembler,
  type TokenArrays,
  transportError,
  truncatedReply,
  minScannedBytes,
} from '../../apis/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { type ResponseHeaders, retryAfterMs, type Shard } from '../../http/index.ts'
import {
  type ClockLimit,
  jsonOrText,
  offAbort,
  onAbort,
  openBrace,
  SseDecoder,
  StreamClock,
  type StreamClockLimits,
  TurnBatches,
} from '../../kit/index.ts'
import { isJsonObject, type Message } from '../../schema/index.ts'
import type { PromptMemory } from './prompt-memory.ts'
import { decodePool, offLoopBytes, transferable } from './decode-pool.ts'
import { SinkFeed } from './sink-feed.ts'

/** A longer reply is abandoned. One event may be as long: a server may put all token ids of a long prompt into it. */
const maxReplyBytes = 64 * 1024 * 1024
/** The most that is read of a long reply in one turn of the loop. */
const maxTurnBytes = 512 * 1024
const maxErrorBytes = 64 * 1024

/** All replies of this thread that have arrived whole and are to be read. */
const wholeReplies = new TurnBatches()

type Controller = Dispatcher.DispatchController

export interface EndpointContext extends StreamClockLimits {
  readonly source: Source
  readonly dialect: ReplyParser
  readonly prompts: PromptMemory
  /** When the first bytes of a reply last came; shared by all endpoints of a backend. */
  readonly lastByte: { at: number }
}

interface BackendExchangeCall {
  readonly signal: AbortSignal
  readonly sessionId: string
  readonly messages: readonly Message[]
  /** 1 if not given. */
  readonly choices?: number | undefined
  /** Whether token ids were asked for: only then are they looked for. */
  readonly wantsTokens: boolean
  readonly sink: ReplySink | undefined
  readonly keepsRaw: boolean
  readonly keepsAborted?: boolean | undefined
  /** The pool that carries the exchange, which counts as busy until it ends. */
  readonly shard: Shard
  readonly resolve: (reply: BackendReply) => void
  readonly reject: (reason: unknown) => void
}

interface WholeReading {
  readonly source: Source
  readonly dialect: ReplyParser
  readonly prompts: PromptMemory
  readonly sessionId: string
  readonly context: AnswerContext
  readonly wantsTokens: boolean
  readonly keepsRaw: boolean
}

/** One request and its answer, as undici's handler. It settles once, and then holds neither timer nor listener. */
export class BackendExchange implements Dispatcher.DispatchHandler {
  readonly #wire: EndpointContext
  readonly #call: BackendExchangeCall
  readonly #wantsTokens: boolean
  readonly #startedAt: number
  #state: 'waiting' | 'sent' | 'decoding' | 'settled' = 'waiting'
  #controller: Controller | undefined
  readonly #clock: StreamClock
  #status = 0
  #headers: ResponseHeaders = {}
  #bytes = 0
  #turnBytes = 0
  #body: ReplyBytes | undefined
  #assembler: StreamAssembler | undefined
  #decoder: SseDecoder | undefined
  #feed: SinkFeed | undefined
  /** Whether the sink takes no more for now, so the socket is not read. */
  #isPaused = false
  #firstTokenMs: number | undefined

  constructor(wire: EndpointContext, call: BackendExchangeCall) {
    this.#wire = wire
    this.#call = call
    this.#wantsTokens = call.wantsTokens && wire.dialect.hasTokens
    this.#clock = new StreamClock(wire, (limit) => this.#onTimeout(limit))
    this.#startedAt = performance.now()
    call.shard.busy += 1
    onAbort(call.signal, this)
  }

  /** Whether anything that still comes over the wire is to be ignored. */
  get #isOffWire(): boolean {
    return this.#state === 'settled' || this.#state === 'decoding'
  }

  get #context(): AnswerContext {
    const { messages, choices, keepsAborted } = this.#call
    return { headers: this.#headers, messages, choices, keepsAborted }
  }

  get #reading(): WholeReading {
    const { source, dialect, prompts } = this.#wire
    const { sessionId, keepsRaw } = this.#call
    return { source, dialect, prompts, sessionId, context: this.#context, wantsTokens: this.#wantsTokens, keepsRaw }
  }

  handleEvent(): void {
    this.#fail(this.#call.signal.reason)
  }

  onRequestStart(controller: Controller): void {
    // The exchange was abandoned while it waited for a connection.
    if (this.#state === 'settled') {
      controller.abort(abandoned)
      return
    }
    this.#state = 'sent'
    this.#controller = controller
    this.#clock.start()
  }

  onResponseStart(_controller: Controller, status: number, headers: ResponseHeaders): void {
    if (status < 200) return
    this.#status = status
    this.#headers = headers
    const { 'content-encoding': encoding = 'identity' } = headers
    if (status < 300 && encoding !== 'identity') {
      this.#fail(packedReply(this.#wire.source, String(encoding)))
      return
    }
    // A server that ignores `stream` answers with plain JSON, and that is read as such.
    const contentType = headers['content-type']
    if (status < 300 && typeof contentType === 'string' && contentType.startsWith('text/event-stream')) {
      this.#beginStream()
    } else {
      this.#body = new ReplyBytes()
    }
  }

  #beginStream(): void {
    this.#body = undefined
    this.#assembler = this.#wire.dialect.assemble(this.#context, this.#wantsTokens)
    if (this.#call.sink) this.#feed = new SinkFeed(this.#assembler, this.#call.sink, () => this.#onResume())
    this.#decoder = new SseDecoder(this.#feed ?? this.#assembler, {
      maxBytes: maxReplyBytes,
      tooLong: () => oversizedReply(this.#wire.source, maxReplyBytes),
      notUtf8: () => invalidUtf8(this.#wire.source),
    })
  }

  onResponseData(_controller: Controller, chunk: Buffer): void {
    if (this.#isOffWire) return
    if (this.#bytes === 0 && this.#status < 300) {
      this.#wire.lastByte.at = performance.now()
      // A stream is recognised whatever its content type says, because the official clients do not look at that either.
      if (this.#body && looksLikeEvents(chunk)) this.#beginStream()
    }
    this.#bytes += chunk.length
    if (this.#bytes > maxReplyBytes && !(this.#decoder && this.#wire.dialect.repeatsItself)) {
      this.#fail(oversizedReply(this.#wire.source, maxReplyBytes))
    } else if (this.#decoder) {
      this.#decode(this.#decoder, chunk)
    } else if (this.#status < 300 || this.#bytes <= maxErrorBytes || this.#body?.length === 0) {
      this.#body?.push(chunk)
      this.#turnBytes += chunk.length
      if (this.#turnBytes >= maxTurnBytes) this.#yieldToLoop()
    }
  }

  /** Lets the loop turn before reading on: Node reads a full socket up to 32 times in one turn, which is 2 MB of a long reply. */
  #yieldToLoop(): void {
    this.#turnBytes = 0
    this.#controller?.pause()
    setImmediate(() => {
      if (this.#state === 'sent') this.#controller?.resume()
    })
  }

  onResponseEnd(): void {
    if (!this.#isOffWire) this.#conclude()
  }

  onResponseError(_controller: Controller, error: Error): void {
    if (this.#isOffWire) return
    const { source } = this.#wire
    if (this.#status === 0) this.#fail(transportError(source, error))
    // An error's status says enough even if its body was cut; a stream that said how it ends has lost nothing.
    else if (this.#status >= 300 || this.#assembler?.isComplete) this.#conclude()
    else this.#fail(truncatedReply(source, error.message, error))
  }

  #decode(decoder: SseDecoder, chunk: Buffer): void {
    try {
      try {
        decoder.push(chunk)
      } finally {
        // The sink also gets what came before a failure.
        this.#feed?.endRead()
      }
    } catch (error) {
      this.#fail(error)
      return
    }
    if (this.#state === 'settled') return
    if (this.#firstTokenMs === undefined && this.#assembler?.hasOutput) {
      this.#firstTokenMs = performance.now() - this.#startedAt
    }
    if (this.#feed?.isPaused) this.#pause()
    else this.#clock.onPiece()
  }

  #pause(): void {
    if (this.#isPaused) return
    this.#isPaused = true
    this.#clock.hold()
    this.#controller?.pause()
  }

  /** The sink takes more again. Deferred, because undici cannot resume one socket while it reads another. */
  #onResume(): void {
    if (this.#isPaused) queueMicrotask(() => this.#goOn())
  }

  #goOn(): void {
    const isWanted = this.#state === 'sent' && !this.#feed?.isPaused
    if (!this.#isPaused || !isWanted) return
    this.#isPaused = false
    this.#clock.goOn()
    this.#controller?.resume()
  }

  /** The answer is complete. The server has done its part: neither its deadline nor its connection is held any longer. */
  #conclude(): void {
    this.#release()
    this.#state = 'decoding'
    const body = this.#status < 300 ? this.#body : undefined
    if (!body || !isForThread(body, this.#reading)) {
      wholeReplies.add(() => this.#resolveWith())
      return
    }
    scanOnThread(body, this.#reading).then(
      (scanned) => wholeReplies.add(() => this.#resolveWith(scanned)),
      (error: unknown) => this.#fail(lostReply(this.#wire.source, error)),
    )
  }

  #resolveWith(scanned?: ScannedReply): void {
    if (this.#state === 'settled') return
    try {
      const reply = scanned ? readScanned(scanned, this.#reading) : this.#read()
      this.#settle()
      this.#call.resolve(reply)
    } catch (error) {
      this.#fail(error)
    }
  }

  #read(): BackendReply {
    if (this.#assembler) {
      const reply = this.#assembler.reply()
      return this.#firstTokenMs === undefined ? reply : { ...reply, firstTokenMs: this.#firstTokenMs }
    }
    const bytes = this.#body?.joined() ?? Buffer.alloc(0)
    if (this.#status < 300) return readWhole(bytes, this.#reading)
    throw reportedError(this.#wire.source, {
      status: this.#status,
      reported: readReportedError(jsonOrText(bytes.toString('utf8'))),
      retryAfterMs: retryAfterMs(this.#headers),
      wantsTokens: this.#wantsTokens,
    })
  }

  /** Ends the exchange; if it is still on the wire, the socket is closed at once. */
  #fail(reason: unknown): void {
    if (this.#state === 'settled') return
    const isOnWire = this.#state === 'sent'
    this.#settle()
    if (isOnWire && this.#controller && !this.#controller.aborted) this.#controller.abort(abandoned)
    try {
      this.#feed?.passPartial()
    } finally {
      this.#call.reject(reason)
    }
  }

  #onTimeout(limit: ClockLimit): void {
    // A server may leave a stream open after its end, and a sink that stalls then has missed nothing.
    if (this.#assembler?.isComplete) {
      this.#conclude()
      this.#controller?.abort(abandoned)
    } else {
      this.#fail(timeoutError(limit, this.#wire))
    }
  }

  #settle(): void {
    if (this.#state !== 'decoding') this.#release()
    this.#state = 'settled'
    offAbort(this.#call.signal, this)
  }

  /** Gives back what the exchange holds only while it is on the wire. */
  #release(): void {
    this.#call.shard.busy -= 1
    this.#clock.stop()
  }
}

/** The reason undici gets when an exchange is abandoned; the caller has its own. One error for all, so no stack is captured. */
const abandoned = new MillraceError('cancelled', 'the request was aborted')

/** Whether a body begins like an event stream, as no JSON does. */
function looksLikeEvents(chunk: Buffer): boolean {
  return chunk[0] !== openBrace && /^(?::|data:|event:)/.test(chunk.toString('latin1', 0, 6))
}

/** Whether a body has tokens that take so long to read that a thread should do it. */
function isForThread(body: ReplyBytes, { prompts, sessionId, wantsTokens }: WholeReading): boolean {
  if (!wantsTokens) return false
  const excess = body.length - offLoopBytes
  // The part of the body that repeats a known prompt need not be read.
  const isShort = excess < 0 || prompts.knownBytes(sessionId, body, excess) > excess
  return !isShort && decodePool.accepts(body.length)
}

/** Has a thread take the tokens out of a body, which is given away. Rejects if the thread is lost. */
async function scanOnThread(
  body: ReplyBytes,
  { prompts, sessionId }: Pick<WholeReading, 'prompts' | 'sessionId'>,
): Promise<ScannedReply> {
  const { scanned, promptText } = await decodePool.decode(body.give())
  const { promptIds } = scanned.tokens
  if (promptText && promptIds) prompts.learn(sessionId, promptText, promptIds)
  return scanned
}

function readWhole(bytes: Buffer, reading: WholeReading): BackendReply {
  const { prompts, sessionId, wantsTokens } = reading
  if (wantsTokens && bytes.length >= minScannedBytes) return readScanned(prompts.scan(sessionId, bytes), reading)
  if (!isUtf8(bytes)) throw invalidUtf8(reading.source)
  return parse(bytes.toString('utf8'), undefined, reading)
}

function readScanned({ rest, tokens, isBroken }: ScannedReply, reading: WholeReading): BackendReply {
  if (isBroken) throw invalidUtf8(reading.source)
  return parse(rest, tokens, reading)
}

function parse(text: string, tokens: TokenArrays | undefined, reading: WholeReading): BackendReply {
  const { source, dialect, context, keepsRaw } = reading
  const document = parseReply(text, source)
  const reply = dialect.parse(document, context, tokens, text)
  return keepsRaw && isJsonObject(document) ? { ...reply, raw: { text, document } } : reply
}

function parseReply(text: string, source: Source): unknown {
  try {
    return JSON.parse(text)
  } catch {
    // A connection that closes early can look like a regular end; the JSON then stops in the middle.
    const trimmed = text.trim()
    const isTruncated = trimmed === '' || (trimmed.startsWith('{') && !trimmed.endsWith('}'))
    throw isTruncated ? truncatedReply(source, `${text.length} characters arrived`) : notJson(source, 'it', trimmed)
  }
}

/**
 * The body of a whole reply, in the chunks it came in. A long body is transferred to a thread with its memory: V8 would
 * collect the whole heap for every 64 MB of it, and so every few hundred replies.
 */
export class ReplyBytes {
  readonly #chunks: Buffer[] = []
  #length = 0
  /** Whether the only chunk is a copy of all chunks, in memory of its own. */
  #isJoined = false

  get length(): number {
    return this.#length
  }

  push(chunk: Buffer): void {
    this.#chunks.push(chunk)
    this.#length += chunk.length
  }

  joined(): Buffer {
    const [only] = this.#chunks
    if (only && this.#chunks.length === 1) return only
    const joined = Buffer.concat(this.#chunks)
    this.#chunks.splice(0, this.#chunks.length, joined)
    this.#isJoined = true
    return joined
  }

  /** The whole body in memory that can be transferred; afterwards nothing is left here. */
  give(): Uint8Array<ArrayBuffer>[] {
    const given = transferable(this.#chunks, { isJoined: this.#isJoined })
    this.#chunks.length = 0
    return given
  }
}

function timeoutError(
  limit: ClockLimit,
  { source, requestTimeoutMs, idleTimeoutMs }: StreamClockLimits & { readonly source: Source },
): MillraceError {
  const data = { backend: source.backend }
  if (limit === 'stall') {
    const message = `the client did not read the reply of ${source.url} for ${requestTimeoutMs} ms (requestTimeoutMs)`
    return new MillraceError('cancelled', `${message}, so the reply was aborted. Read it faster, or raise the limit.`, {
      data,
    })
  }
  const what =
    limit === 'idle'
      ? `sent nothing for ${idleTimeoutMs} ms in the middle of a reply (idleTimeoutMs)`
      : `did not end its reply within ${requestTimeoutMs} ms (requestTimeoutMs)`
  return new MillraceError('model_timeout', `${source.url} ${what}. Raise the limit if the model needs longer.`, {
    data,
  })
}
