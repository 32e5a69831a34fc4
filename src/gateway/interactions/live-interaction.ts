import { newReplyId, type DialectRequest, type ReplyHead } from '../../dialects/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { AbortSource } from '../../kit/index.ts'
import {
  type BackendReply,
  type BrokenReply,
  type CallHooks,
  type CompleteReply,
  type ModelReply,
  type PartialReply,
  type ReplyEvent,
  type ReplySink,
} from '../../inference/index.ts'
import type { ItemIds } from '../../schema/index.ts'
import type { ClientStream } from './_client-stream.ts'
import { Heartbeat } from './_heartbeat.ts'
import { itemIdsIn } from './_item-ids.ts'
import { PassedStream, replyIdIn } from './_passed-stream.ts'
import { recordComplete, recordLost } from './_record-reply.ts'
import type { UpstreamRequest } from './_upstream-request.ts'
import { clientGone } from '../_refusals.ts'
import type { TurnTokens } from '../token-sum.ts'
import { noHeaders, sendError, sendReply, sendRest, sendWhole, type ErrorPlace } from './_send-reply.ts'
import type { SessionPlace } from './_session-place.ts'
import { TranslatedStream } from './_translated-stream.ts'
import type { ClientReply } from './client-reply.ts'

/** The result of an interaction. `reply` is missing if no model was asked for it. */
export type InteractionAnswer =
  | { readonly kind: 'counted' }
  | {
      readonly kind: 'complete'
      readonly replyId: string
      readonly reply?: CompleteReply
      readonly turn?: TurnTokens | undefined
    }
  | { readonly kind: 'broken'; readonly error: MillraceError; readonly reply?: BrokenReply }

/** How a client's request ended, for counts and events. */
export interface InteractionEnd {
  readonly answer: InteractionAnswer
  readonly status: number
}

/** The result of an interaction for which a model was asked. */
type LiveInteractionAnswer =
  | {
      readonly kind: 'complete'
      readonly replyId: string
      readonly reply: CompleteReply
      readonly turn: TurnTokens | undefined
    }
  | { readonly kind: 'broken'; readonly error: MillraceError; readonly reply?: BrokenReply }

/** A client that waits for the reply to another client's request, which was the same. */
interface Joined {
  readonly client: ClientReply
  readonly request: DialectRequest
  readonly place: ErrorPlace
}

/** How requests wait for a backend. One object for all requests. */
export interface WaitRules {
  /** How often a client whose stream has no events yet gets a sign of life. */
  readonly beatMs: number
  /** Why no request may wait any longer, once that is so. */
  end: MillraceError | undefined
}

export interface LiveInteractionOptions {
  readonly upstream: UpstreamRequest
  readonly client: ClientReply
  readonly waitRules: WaitRules
  /** Records the request, if that is wanted, and returns the place of the reply. Called once the backend has been asked. */
  readonly record?: () => SessionPlace
}

/** Logged in place of a status for a client that is gone. */
export const goneStatus = 499

/**
 * One request of a client and the reply to it. What the backend sends is passed on to the client as it comes, except for its
 * end: that is held back until the reply is recorded, so that a client that saw a complete reply finds it on record whatever
 * happens next. Clients that repeat the request wait for the same reply. When no client waits any more, the request is given
 * up.
 */
export class LiveInteraction implements ReplySink, CallHooks {
  /** Replaced if the backend refuses what is asked for the record. */
  #upstream: UpstreamRequest
  readonly #waitRules: WaitRules
  readonly #record: (() => SessionPlace) | undefined
  #place: SessionPlace | undefined
  readonly #abort = new AbortSource()
  readonly #end = Promise.withResolvers<{ readonly answer: LiveInteractionAnswer; readonly status: number }>()
  #client: ClientReply | undefined
  /** Clients that take the reply only together with others. */
  #together: ClientReply[] | undefined
  readonly #createdAt = Math.floor(Date.now() / 1000)
  /** How many clients wait for the reply. */
  #audience = 1
  #state: 'asking' | 'streaming' | 'ended' = 'asking'
  #stream: ClientStream | undefined
  #heartbeat: Heartbeat | undefined
  #partial: PartialReply | undefined
  /** Whether the request waits for a backend, and is not on the wire. */
  #isWaiting = false
  #lastFailure: MillraceError | undefined
  /** Whether the reply is there, so that nothing is left to abort: its client may come again for it. */
  #isRecorded = false
  /** Whether the request was on the wire when it was aborted. */
  #wasOnWire = false
  /** Resumes the backend; set while a slow client is waited for. */
  #resume: (() => void) | undefined

  constructor({ upstream, client, waitRules, record }: LiveInteractionOptions) {
    this.#upstream = upstream
    this.#client = client
    if (client.ready) this.#together = [client]
    this.#waitRules = waitRules
    this.#record = record
  }

  get signal(): AbortSignal {
    return this.#abort.signal
  }

  /** Settles when the client has got everything it gets. Never rejects. */
  get ended(): Promise<InteractionEnd> {
    return this.#end.promise
  }

  start(): Promise<InteractionEnd> {
    if (this.#client?.isGone) this.#onClientGone()
    else this.#client?.onGone(this.#onClientGone)
    this.#ask()
    this.#enter()
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

  /** Finds the interaction's place in the session, while the backend works. */
  #enter(): void {
    try {
      this.#place = this.#record?.()
      this.#place?.enter(this)
    } catch (error) {
      this.abort(MillraceError.from(error, 'internal'))
    }
  }

  /** Aborts the request, whichever clients still wait for it, unless its reply is there. */
  abort(reason: MillraceError): void {
    if (this.#isRecorded || this.#state === 'ended' || this.signal.aborted) return
    this.#wasOnWire = !this.#isWaiting
    this.#place?.forget(this)
    this.#abort.abort(reason)
  }

  /** Answers one more client, which sent the same request. Undefined if it is too late for that. */
  join(client: ClientReply, request: DialectRequest): Promise<InteractionEnd> | undefined {
    if (this.#abort.signal.aborted) return undefined
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
      return this.#answerAlso({ client, request, place: heartbeat?.isPromised ? 'in-stream' : 'instead' }, answer)
    })
  }

  /** Aborts if the request waits for a backend just now. */
  abortWaiting(reason: MillraceError): void {
    if (this.#isWaiting) this.abort(reason)
  }

  onWaitStart(): void {
    this.#isWaiting = true
    if (this.#waitRules.end) this.abort(this.#waitRules.end)
  }

  onWaitEnd(): void {
    this.#isWaiting = false
  }

  onFailedTry(_ms: number, error: MillraceError): void {
    this.#lastFailure = error
  }

  onParked(error: MillraceError): void {
    this.#lastFailure = error
  }

  /** A heartbeat that is silent while the request waits for a backend: it may still be refused with a status and a delay. */
  #newHeartbeat(client: ClientReply): Heartbeat {
    return new Heartbeat(client, { everyMs: this.#waitRules.beatMs, isUndecided: () => this.#isWaiting })
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

  /** Called when the client that asked first is gone. */
  readonly #onClientGone = (): void => {
    this.#client = undefined
    // Other clients may still wait for the reply.
    this.#resume?.()
    this.#leave()
  }

  #leave(): void {
    this.#audience -= 1
    if (this.#audience === 0) this.abort(clientGone(this.#isWaiting ? this.#lastFailure : undefined))
  }

  #streamText(event: ReplyEvent): string {
    if (this.#stream) return this.#stream.event(event)
    this.#state = 'streaming'
    this.#client?.beginStream(noHeaders)
    this.#stream = this.#newStream()
    return this.#stream.start() + this.#stream.event(event)
  }

  #newStream(): ClientStream {
    const { dialect, request, isSameApi, clientView } = this.#upstream
    if (isSameApi) return new PassedStream(dialect.api, clientView)
    return new TranslatedStream(dialect, this.#head(newReplyId(dialect.api), request))
  }

  readonly #onReply = (reply: ModelReply): void => {
    if (reply.status !== 'complete') {
      const plainer = this.#state === 'asking' ? this.#upstream.plainer(reply.error) : undefined
      if (plainer) {
        this.#upstream = plainer
        this.#ask()
        return
      }
      this.#recordLost(reply)
      this.#fail(reply.error, reply)
      return
    }
    this.#upstream.learn()
    const replyId = this.#replyIdOf(reply)
    this.#isRecorded = true
    if (this.#place) recordComplete(this.#place, this.#upstream, { reply, replyId, itemIds: this.#itemIdsOf(reply) })
    const pending = this.#together ? this.#whenTogether() : this.#place?.written()
    if (!pending) {
      this.#deliver(reply, replyId)
      return
    }
    pending.then(() => this.#deliver(reply, replyId)).catch(this.#onFault)
  }

  /** Resolves when the reply is recorded, and no client has to wait for the others of its replies. */
  async #whenTogether(): Promise<void> {
    await this.#place?.written()
    const clients = this.#together ?? []
    await Promise.all(clients.map(async (client) => client.ready?.()))
    // Others may have joined meanwhile.
    if (clients !== this.#together) await this.#whenTogether()
  }

  /** The store or our own code failed: the client must not take the reply for recorded. */
  readonly #onFault = (thrown: unknown): void => {
    this.#fail(MillraceError.from(thrown, 'internal'))
  }

  #recordLost(reply: BrokenReply): void {
    if (!this.#place) return
    const wasSampling = reply.status === 'aborted' && this.#wasOnWire && reply.tries > 0
    const partial = this.#partial
    recordLost(this.#place, this.#upstream, { reply, partial, replyId: this.#stream?.replyId, wasSampling })
  }

  #replyIdOf({ raw }: BackendReply): string {
    return this.#stream?.replyId ?? (raw && replyIdIn(raw.document)) ?? newReplyId(this.#upstream.dialect.api)
  }

  #itemIdsOf({ raw }: BackendReply): ItemIds | undefined {
    if (this.#stream) return this.#stream.itemIds
    return raw && this.#upstream.dialect.api === 'responses' ? itemIdsIn(raw.document) : undefined
  }

  #deliver(reply: CompleteReply, replyId: string): void {
    const client = this.#client
    if (client) {
      if (this.#stream) sendRest(client, this.#stream.end(reply))
      else this.#sendWholeReply(client, this.#upstream.request, { reply, replyId })
    }
    this.#settle({ kind: 'complete', reply, replyId, turn: this.#place?.turn }, client ? 200 : goneStatus)
  }

  /** Sends a complete reply to a client that has seen nothing of it: as the backend wrote it, if the client asked for that. */
  #sendWholeReply(
    client: ClientReply,
    request: DialectRequest,
    { reply, replyId }: { readonly reply: CompleteReply; readonly replyId: string },
  ): void {
    if (reply.raw && !request.stream) sendWhole(client, this.#wholeText(reply.raw))
    else {
      const head = { ...this.#head(replyId, request), itemIds: this.#itemIdsOf(reply) }
      sendReply(client, this.#upstream.dialect, head, reply)
    }
  }

  /** Answers a client that joined. It has seen nothing so far, so it gets the reply from the beginning. */
  #answerAlso({ client, request, place }: Joined, answer: LiveInteractionAnswer): InteractionEnd {
    const { dialect } = this.#upstream
    const { isGone } = client
    if (answer.kind === 'broken') {
      const { error } = answer
      const status = isGone ? goneStatus : sendError(client, dialect, error, place)
      return { answer: { kind: 'broken', error }, status }
    }
    const { replyId } = answer
    if (!isGone) this.#sendWholeReply(client, request, answer)
    return { answer: { kind: 'complete', replyId }, status: isGone ? goneStatus : 200 }
  }

  /** The reply as the backend wrote it, or as the client is to see it. */
  #wholeText({ text, document }: NonNullable<BackendReply['raw']>): string {
    const seen = this.#upstream.clientView?.of(document) ?? document
    return seen === document ? text : JSON.stringify(seen)
  }

  #fail(error: MillraceError, reply?: BrokenReply): void {
    if (this.#state === 'ended') return
    const client = this.#client
    const place = this.#heartbeat?.isPromised || this.#state === 'streaming' ? 'in-stream' : 'instead'
    const status = client ? sendError(client, this.#upstream.dialect, error, place) : goneStatus
    this.#settle({ kind: 'broken', error, ...(reply && { reply }) }, status)
  }

  #settle(answer: LiveInteractionAnswer, status: number): void {
    this.#state = 'ended'
    this.#heartbeat?.stop()
    this.#client?.onGone(undefined)
    this.#place?.leave(this, this.#audience > 0)
    this.#end.resolve({ answer, status })
  }

  #head(id: string, request: DialectRequest): ReplyHead {
    return { id, model: request.model, createdAt: this.#createdAt, request }
  }
}
