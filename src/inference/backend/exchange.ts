import type { Dispatcher } from 'undici'
import {
  type AnswerContext,
  type AnswerReader,
  type BackendReply,
  brokenText,
  lostReply,
  oversizedReply,
  packedReply,
  readReportedError,
  type ReplySink,
  reportedError,
  type ScannedReply,
  type Source,
  type StreamAssembler,
  transportError,
  truncatedReply,
} from '../../apis/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { type ResponseHeaders, retryAfterMs, type Shard } from '../../http/index.ts'
import { jsonOrText, offAbort, onAbort, openBrace, SseDecoder, timerMs, TurnBatches } from '../../kit/index.ts'
import type { Message } from '../../schema/index.ts'
import type { PromptMemory } from './prompt-memory.ts'
import { isForThread, readScanned, readWhole, ReplyBytes, scanOnThread, type WholeReading } from './whole-reply.ts'
import { SinkFeed } from './sink-feed.ts'

/** A longer reply is given up. One event may be as long: a server may put all token ids of a long prompt into it. */
const maxReplyBytes = 64 * 1024 * 1024
/** The most that is read of a long reply in one turn of the loop. */
const maxTurnBytes = 512 * 1024
const maxErrorBytes = 64 * 1024

/** All replies of this thread that have arrived whole and are to be read. */
const wholeReplies = new TurnBatches()

type Controller = Dispatcher.DispatchController

export interface Wire extends ReplyClockLimits {
  readonly source: Source
  readonly dialect: AnswerReader
  readonly prompts: PromptMemory
  /** When the first bytes of a reply last came; shared by all endpoints of a backend. */
  readonly heard: { at: number }
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
  /** The pool that carries the exchange, which counts as busy until it ends. */
  readonly shard: Shard
  readonly resolve: (reply: BackendReply) => void
  readonly reject: (reason: unknown) => void
}

/** One request and its answer, as undici's handler. It settles once, and then holds neither timer nor listener. */
export class BackendExchange implements Dispatcher.DispatchHandler {
  readonly #wire: Wire
  readonly #call: BackendExchangeCall
  readonly #wantsTokens: boolean
  readonly #startedAt: number
  #state: 'waiting' | 'sent' | 'decoding' | 'settled' = 'waiting'
  #controller: Controller | undefined
  readonly #clock: ReplyClock
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

  constructor(wire: Wire, call: BackendExchangeCall) {
    this.#wire = wire
    this.#call = call
    this.#wantsTokens = call.wantsTokens && wire.dialect.hasTokens
    this.#clock = new ReplyClock(wire, (limit) => this.#onTimeout(limit))
    this.#startedAt = performance.now()
    call.shard.busy += 1
    onAbort(call.signal, this)
  }

  /** Whether anything that still comes over the wire is to be ignored. */
  get #isOffWire(): boolean {
    return this.#state === 'settled' || this.#state === 'decoding'
  }

  get #context(): AnswerContext {
    return { headers: this.#headers, messages: this.#call.messages, choices: this.#call.choices }
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
    // The exchange was given up while it waited for a connection.
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
      notUtf8: () => brokenText(this.#wire.source),
    })
  }

  onResponseData(_controller: Controller, chunk: Buffer): void {
    if (this.#isOffWire) return
    if (this.#bytes === 0 && this.#status < 300) {
      this.#wire.heard.at = performance.now()
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
      if (this.#turnBytes >= maxTurnBytes) this.#takeBreath()
    }
  }

  /** Lets the loop turn before reading on: Node reads a full socket up to 32 times in one turn, which is 2 MB of a long reply. */
  #takeBreath(): void {
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
    if (this.#feed?.isHeld) this.#pause()
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
    const isWanted = this.#state === 'sent' && !this.#feed?.isHeld
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
      this.#feed?.breakOff()
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

/** The reason undici gets when an exchange is given up; the caller has its own. One error for all, so no stack is captured. */
const abandoned = new MillraceError('cancelled', 'the request was given up')

/** Whether a body begins like an event stream, as no JSON does. */
function looksLikeEvents(chunk: Buffer): boolean {
  return chunk[0] !== openBrace && /^(?::|data:|event:)/.test(chunk.toString('latin1', 0, 6))
}

/** `deadline`: the whole request. `idle`: silence in a stream. `stall`: the sink did not take the reply. */
export type ClockLimit = 'deadline' | 'idle' | 'stall'

interface ReplyClockLimits {
  readonly requestTimeoutMs: number
  readonly idleTimeoutMs: number
}

/** The time one server has for one reply. The clock stands still while a sink holds the reply up: that is not its fault. */
export class ReplyClock {
  readonly #limits: ReplyClockLimits
  readonly #onTimeout: (limit: ClockLimit) => void
  /** The timer of the server's deadline, or of the sink's: never both. */
  #deadline: NodeJS.Timeout | undefined
  #idle: NodeJS.Timeout | undefined
  /** When the server's time is up; while the clock stands still, how much time is left. */
  #dueAt = 0
  #leftMs = 0

  constructor(limits: ReplyClockLimits, onTimeout: (limit: ClockLimit) => void) {
    this.#limits = limits
    this.#onTimeout = onTimeout
  }

  start(ms = this.#limits.requestTimeoutMs): void {
    this.#dueAt = performance.now() + ms
    this.#deadline = setTimeout(() => this.#onTimeout('deadline'), timerMs(ms))
  }

  onPiece(): void {
    if (this.#idle) this.#idle.refresh()
    else this.#idle = setTimeout(() => this.#onTimeout('idle'), timerMs(this.#limits.idleTimeoutMs))
  }

  hold(): void {
    this.stop()
    this.#leftMs = this.#dueAt - performance.now()
    this.#deadline = setTimeout(() => this.#onTimeout('stall'), timerMs(this.#limits.requestTimeoutMs))
  }

  goOn(): void {
    this.stop()
    this.start(this.#leftMs)
    this.onPiece()
  }

  stop(): void {
    clearTimeout(this.#deadline)
    clearTimeout(this.#idle)
    this.#idle = undefined
  }
}

function timeoutError(
  limit: ClockLimit,
  { source, requestTimeoutMs, idleTimeoutMs }: ReplyClockLimits & { readonly source: Source },
): MillraceError {
  const data = { backend: source.backend }
  if (limit === 'stall') {
    const message = `nobody took the reply of ${source.url} for ${requestTimeoutMs} ms (requestTimeoutMs)`
    return new MillraceError('cancelled', `${message}: it was given up. Read it faster, or raise the limit.`, { data })
  }
  const what =
    limit === 'idle'
      ? `sent nothing for ${idleTimeoutMs} ms in the middle of a reply (idleTimeoutMs)`
      : `did not end its reply within ${requestTimeoutMs} ms (requestTimeoutMs)`
  return new MillraceError('model_timeout', `${source.url} ${what}. Raise the limit if the model needs longer.`, {
    data,
  })
}
