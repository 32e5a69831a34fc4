import {
  type BackendReply,
  type CountingDialect,
  type DialectRequest,
  newReplyId,
  type PartialReply,
  type ReplyEvent,
  type ReplyHead,
  type ReplySink,
} from '../../apis/index.ts'
import {
  type ClientReply,
  type ErrorDelivery,
  Heartbeat,
  noHeaders,
  sendError,
  sendReply,
  sendRest,
  sendWhole,
} from '../../endpoint/index.ts'
import { MillraceError } from '../../errors/index.ts'
import type { InvalidReply, CallHooks, CompleteReply, ModelReply } from '../../inference/index.ts'
import { AbortSource } from '../../kit/index.ts'
import type { ItemIds } from '../../schema/index.ts'
import type { ReplyRecording } from './reply-recording.ts'
import { clientGone } from '../errors.ts'
import {
  type ClientStream,
  clientClosedStatus,
  type RequestEnd,
  itemIdsIn,
  PassedStream,
  replyIdIn,
  TranslatedStream,
} from './client-reply.ts'
import type { RunningRequest } from '../sessions/session-memory.ts'
import type { TurnTokens } from '../sessions/session-tree.ts'
import type { UpstreamRequest } from './upstream-request.ts'

export interface WaitRules {
  readonly beatMs: number
  end: MillraceError | undefined
}

/** A call of a model, which can be aborted while it waits for a backend, or at any time. */
export abstract class LiveCall implements CallHooks {
  protected readonly waitRules: WaitRules
  protected isWaiting = false
  readonly #abort = new AbortSource()
  #lastFailure: MillraceError | undefined

  constructor(waitRules: WaitRules) {
    this.waitRules = waitRules
  }

  abstract start(): Promise<RequestEnd>

  get signal(): AbortSignal {
    return this.#abort.signal
  }

  abort(reason: MillraceError): void {
    this.#abort.abort(reason)
  }

  abortWaiting(reason: MillraceError): void {
    if (this.isWaiting) this.abort(reason)
  }

  protected abortForGoneClient(): void {
    this.abort(clientGone(this.isWaiting ? this.#lastFailure : undefined))
  }

  onWaitStart(): void {
    this.isWaiting = true
    if (this.waitRules.end) this.abort(this.waitRules.end)
  }

  onWaitEnd(): void {
    this.isWaiting = false
  }

  onFailedTry(_ms: number, error: MillraceError): void {
    this.#lastFailure = error
  }

  onParked(error: MillraceError): void {
    this.#lastFailure = error
  }
}

interface LiveCountOptions {
  readonly upstream: UpstreamRequest
  readonly counting: CountingDialect
  readonly client: ClientReply
  readonly waitRules: WaitRules
}

/** One client's question how many tokens a prompt has, abandoned when the client goes. */
export class LiveCount extends LiveCall {
  readonly #options: LiveCountOptions

  constructor(options: LiveCountOptions) {
    super(options.waitRules)
    this.#options = options
  }

  async start(): Promise<RequestEnd> {
    const { client, counting, upstream } = this.#options
    if (client.isGone) this.abortForGoneClient()
    else client.onGone(() => this.abortForGoneClient())
    try {
      const tokens = await upstream.model.client.countTokens(upstream.toModel(), this)
      sendWhole(client, JSON.stringify(counting.whole(tokens)))
      return { answer: { kind: 'counted' }, status: client.isGone ? clientClosedStatus : 200 }
    } catch (thrown) {
      const error = MillraceError.from(thrown, 'internal')
      const status = client.isGone ? clientClosedStatus : sendError(client, upstream.dialect, error)
      return { answer: { kind: 'broken', error }, status }
    } finally {
      client.onGone(undefined)
    }
  }
}

type LiveAnswer =
  | {
      readonly kind: 'complete'
      readonly replyId: string
      readonly reply: CompleteReply
      readonly turn: TurnTokens | undefined
    }
  | { readonly kind: 'broken'; readonly error: MillraceError; readonly reply?: InvalidReply }

/** A client that waits for the reply to another client's request, which was the same. */
interface JoinedClient {
  readonly client: ClientReply
  readonly request: DialectRequest
  readonly delivery: ErrorDelivery
}

interface LiveRequestOptions {
  readonly upstream: UpstreamRequest
  readonly client: ClientReply
  readonly waitRules: WaitRules
  /** Records the request, if that is wanted, and returns the recording of its reply. Called once the backend has been asked. */
  readonly record?: () => ReplyRecording
}

/**
 * One request of a client and its reply. Events are passed on as they come, except for the end, which is held back until the
 * reply is recorded. Clients that repeat the request wait for the same reply; when none waits any more, it is aborted.
 */
export class LiveRequest extends LiveCall implements ReplySink, RunningRequest {
  #upstream: UpstreamRequest
  readonly #record: LiveRequestOptions['record']
  #recording: ReplyRecording | undefined
  readonly #end = Promise.withResolvers<{ readonly answer: LiveAnswer; readonly status: number }>()
  #client: ClientReply | undefined
  #together: ClientReply[] | undefined
  readonly #createdAt = Math.floor(Date.now() / 1000)
  #audience = 1
  #state: 'asking' | 'streaming' | 'ended' = 'asking'
  #stream: ClientStream | undefined
  #heartbeat: Heartbeat | undefined
  #partial: PartialReply | undefined
  /** Whether the reply is there, so that nothing is left to abort: its client may come again for it. */
  #isRecorded = false
  #wasOnWire = false
  #resume: (() => void) | undefined

  constructor({ upstream, client, waitRules, record }: LiveRequestOptions) {
    super(waitRules)
    this.#upstream = upstream
    this.#client = client
    if (client.ready) this.#together = [client]
    this.#record = record
  }

  get ended(): Promise<RequestEnd> {
    return this.#end.promise
  }

  start(): Promise<RequestEnd> {
    if (this.#client?.isGone) this.#onClientGone()
    else this.#client?.onGone(this.#onClientGone)
    this.#ask()
    // The request is recorded while the backend works.
    try {
      this.#recording = this.#record?.()
      this.#recording?.enter(this)
    } catch (error) {
      this.abort(MillraceError.from(error, 'internal'))
    }
    return this.#end.promise
  }

  #ask(): void {
    const { model, isAskedWhole } = this.#upstream
    if (!isAskedWhole) this.#heartbeat?.stop()
    else if (this.#client) this.#heartbeat ??= this.#newHeartbeat(this.#client)
    Promise.try(() => model.client.call(this.#upstream.toModel(this), this))
      .then(this.#onReply)
      .catch(this.#onFault)
  }

  /** Aborts the request, whichever clients still wait for it, unless its reply is there. */
  override abort(reason: MillraceError): void {
    if (this.#isRecorded || this.#state === 'ended' || this.signal.aborted) return
    this.#wasOnWire = !this.isWaiting
    this.#recording?.forget(this)
    super.abort(reason)
  }

  join(client: ClientReply, request: DialectRequest): Promise<RequestEnd> | undefined {
    if (this.signal.aborted) return undefined
    // This client sees nothing of the reply before its end, even if the first client gets a stream.
    const heartbeat = request.stream && !client.isGone ? this.#newHeartbeat(client) : undefined
    if (client.ready) this.#together = [...(this.#together ?? []), client]
    if (!client.isGone) {
      this.#audience += 1
      client.onGone(() => {
        heartbeat?.stop()
        this.#leave()
      })
    }
    return this.#end.promise.then(({ answer }) => {
      heartbeat?.stop()
      client.onGone(undefined)
      return this.#answerAlso({ client, request, delivery: heartbeat?.isPromised ? 'in-stream' : 'instead' }, answer)
    })
  }

  /** A heartbeat that is silent while the request waits for a backend: it may still be refused with a status and a delay. */
  #newHeartbeat(client: ClientReply): Heartbeat {
    return new Heartbeat(client, this.waitRules.beatMs, () => this.isWaiting)
  }

  onEvents(events: readonly ReplyEvent[], resume: () => void): boolean {
    let text = ''
    for (const event of events) text += this.#streamText(event)
    if (text === '' || !this.#client || this.#client.write(text, resume)) return true
    this.#resume = resume
    return false
  }

  onPartial(partial: PartialReply): void {
    this.#partial = partial
  }

  readonly #onClientGone = (): void => {
    this.#client = undefined
    // Other clients may still wait for the reply.
    this.#resume?.()
    this.#leave()
  }

  #leave(): void {
    this.#audience -= 1
    if (this.#audience === 0) this.abortForGoneClient()
  }

  #streamText(event: ReplyEvent): string {
    if (this.#stream) return this.#stream.event(event)
    const { dialect, request, isSameApi, clientView } = this.#upstream
    this.#state = 'streaming'
    this.#client?.beginStream(noHeaders)
    this.#stream = isSameApi
      ? new PassedStream(dialect.api, clientView)
      : new TranslatedStream(dialect, this.#head(newReplyId(dialect.api), request))
    return this.#stream.start() + this.#stream.event(event)
  }

  readonly #onReply = async (reply: ModelReply): Promise<void> => {
    if (reply.status !== 'complete') {
      const fallback = this.#state === 'asking' ? this.#upstream.fallback(reply.error) : undefined
      if (fallback) {
        this.#upstream = fallback
        this.#ask()
        return
      }
      const wasSampling = reply.status === 'aborted' && this.#wasOnWire && reply.tries > 0
      const received = { partial: this.#partial, replyId: this.#stream?.replyId, wasSampling }
      this.#recording?.recordLost(this.#upstream, reply, received)
      this.#fail(reply.error, reply)
      return
    }
    this.#upstream.learn()
    const { raw } = reply
    const replyId = this.#stream?.replyId ?? (raw && replyIdIn(raw.document)) ?? newReplyId(this.#upstream.dialect.api)
    this.#isRecorded = true
    this.#recording?.recordComplete(this.#upstream, reply, { replyId, itemIds: this.#itemIdsOf(reply) })
    await this.#recording?.durable()
    if (this.#together) await this.#allReady()
    this.#deliver(reply, replyId)
  }

  /** Resolves when no client has to wait for the others of its replies. */
  async #allReady(): Promise<void> {
    const clients = this.#together ?? []
    await Promise.all(clients.map(async (client) => client.ready?.()))
    if (clients !== this.#together) await this.#allReady()
  }

  /** The store or our own code failed: the client must not take the reply for recorded. */
  readonly #onFault = (thrown: unknown): void => {
    this.#fail(MillraceError.from(thrown, 'internal'))
  }

  #itemIdsOf({ raw }: BackendReply): ItemIds | undefined {
    if (this.#stream) return this.#stream.itemIds
    return raw && this.#upstream.dialect.api === 'responses' ? itemIdsIn(raw.document) : undefined
  }

  #deliver(reply: CompleteReply, replyId: string): void {
    const client = this.#client
    if (client && this.#stream) sendRest(client, this.#stream.end(reply))
    else if (client) this.#sendWholeReply(client, this.#upstream.request, { reply, replyId })
    this.#settle({ kind: 'complete', reply, replyId, turn: this.#recording?.turn }, client ? 200 : clientClosedStatus)
  }

  /** Sends a complete reply to a client that has seen nothing of it: as the backend wrote it, if the client asked for that. */
  #sendWholeReply(
    client: ClientReply,
    request: DialectRequest,
    { reply, replyId }: { readonly reply: CompleteReply; readonly replyId: string },
  ): void {
    const { dialect, clientView } = this.#upstream
    if (!reply.raw || request.stream) {
      const head = { ...this.#head(replyId, request), itemIds: this.#itemIdsOf(reply) }
      sendReply(client, dialect, head, reply)
      return
    }
    const { text, document } = reply.raw
    const seen = clientView?.(document) ?? document
    sendWhole(client, seen === document ? text : JSON.stringify(seen))
  }

  /** Answers a client that joined. It has seen nothing so far, so it gets the reply from the beginning. */
  #answerAlso({ client, request, delivery }: JoinedClient, answer: LiveAnswer): RequestEnd {
    const { isGone } = client
    if (answer.kind === 'broken') {
      const { error } = answer
      const status = isGone ? clientClosedStatus : sendError(client, this.#upstream.dialect, error, delivery)
      return { answer: { kind: 'broken', error }, status }
    }
    const { replyId } = answer
    if (!isGone) this.#sendWholeReply(client, request, answer)
    return { answer: { kind: 'complete', replyId }, status: isGone ? clientClosedStatus : 200 }
  }

  #fail(error: MillraceError, reply?: InvalidReply): void {
    if (this.#state === 'ended') return
    const client = this.#client
    const delivery = this.#heartbeat?.isPromised || this.#state === 'streaming' ? 'in-stream' : 'instead'
    const status = client ? sendError(client, this.#upstream.dialect, error, delivery) : clientClosedStatus
    this.#settle({ kind: 'broken', error, ...(reply && { reply }) }, status)
  }

  #settle(answer: LiveAnswer, status: number): void {
    this.#state = 'ended'
    this.#heartbeat?.stop()
    this.#client?.onGone(undefined)
    this.#recording?.leave(this, this.#audience > 0)
    this.#end.resolve({ answer, status })
  }

  #head(id: string, request: DialectRequest): ReplyHead {
    return { id, model: request.model, createdAt: this.#createdAt, request }
  }
}
