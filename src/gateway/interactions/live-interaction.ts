import { newReplyId, type DialectRequest, type ReplyHead } from '../../dialects/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { AbortSource } from '../../kit/index.ts'
import {
  costOf,
  untoldUsage,
  withUsage,
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
import { isEmpty } from './_is-empty.ts'
import { PassedStream, replyIdIn } from './_passed-stream.ts'
import { type Patience, Wait } from './_patience.ts'
import type { Question } from './_question.ts'
import { clientGone, waitedTooLong } from '../_refusals.ts'
import { noHeaders, sendError, sendReply, sendRest, sendWhole, type ErrorPlace } from './_send-reply.ts'
import { completeTokens } from '../captured-tokens.ts'
import type { SessionPlace } from './_session-place.ts'
import { TranslatedStream } from './_translated-stream.ts'
import type { ClientReply } from './client-reply.ts'

/** What came of it. `reply` is missing where no model was asked for it. */
export type Answer =
  | { readonly kind: 'counted' }
  | { readonly kind: 'complete'; readonly replyId: string; readonly reply?: CompleteReply }
  | { readonly kind: 'broken'; readonly error: MillraceError; readonly reply?: BrokenReply }

/** How the client's request ended, for whoever keeps the books. */
export interface InteractionEnd {
  readonly answer: Answer
  readonly status: number
}

/** The same of one that a model was asked for. */
type LiveAnswer =
  | { readonly kind: 'complete'; readonly replyId: string; readonly reply: CompleteReply }
  | { readonly kind: 'broken'; readonly error: MillraceError; readonly reply?: BrokenReply }

/** A client that waits for the reply to somebody else's request, which was the same. */
interface Joined {
  readonly client: ClientReply
  readonly request: DialectRequest
  readonly place: ErrorPlace
}

export interface LiveInteractionOptions {
  readonly question: Question
  readonly client: ClientReply
  readonly patience: Patience
  /** Records the request, if it is to be, and says where the reply goes. Called when the backend has been asked. */
  readonly record?: () => SessionPlace
}

/** A client that is gone gets no status; this is what logs say instead. */
export const goneStatus = 499

/**
 * One request of a client and the reply to it. What the backend sends goes to the client as it comes, except for its end:
 * that is held back until the reply is recorded, so that a client that saw a complete reply finds it on record whatever
 * happens next. Clients that repeat the request wait for the same reply. When nobody waits any more, it is given up.
 */
export class LiveInteraction implements ReplySink, CallHooks {
  /** Changes if the backend refuses what was asked of it for the record. */
  #question: Question
  readonly #patience: Patience
  readonly #record: (() => SessionPlace) | undefined
  #place: SessionPlace | undefined
  readonly #abort = new AbortSource()
  readonly #end = Promise.withResolvers<{ readonly answer: LiveAnswer; readonly status: number }>()
  #client: ClientReply | undefined
  readonly #createdAt = Math.floor(Date.now() / 1000)
  /** Clients that wait for the reply. */
  #audience = 1
  #state: 'asking' | 'streaming' | 'ended' = 'asking'
  #stream: ClientStream | undefined
  #heartbeat: Heartbeat | undefined
  #partial: PartialReply | undefined
  /** None before it had to wait for a backend, or was refused by one. */
  #wait: Wait | undefined
  /** There is nothing left to give up: its client may come again for it. */
  #isRecorded = false
  /** Whether a backend was at it when it was given up. */
  #wasOnWire = false
  /** Lets the backend go on, while the client is the one that is waited for. */
  #resume: (() => void) | undefined

  constructor({ question, client, patience, record }: LiveInteractionOptions) {
    this.#question = question
    this.#client = client
    this.#patience = patience
    this.#record = record
  }

  get signal(): AbortSignal {
    return this.#abort.signal
  }

  /** Settles when the client has got all it gets. Never rejects. */
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
    const { model, isAskedWhole } = this.#question
    if (!isAskedWhole) this.#heartbeat?.stop()
    else if (this.#client) this.#heartbeat ??= this.#newHeartbeat(this.#client)
    Promise.try(() => model.client.call(this.#question.toModel(this), this))
      .then(this.#onReply)
      .catch(this.#onFault)
  }

  /** Its place is worked out while the backend works. */
  #enter(): void {
    try {
      this.#place = this.#record?.()
      this.#place?.enter(this)
    } catch (error) {
      this.abort(MillraceError.from(error, 'internal'))
    }
  }

  /** Ends it whoever still waits for it, unless its reply is there. */
  abort(reason: MillraceError): void {
    if (this.#isRecorded || this.#state === 'ended' || this.signal.aborted) return
    this.#wasOnWire = !this.#wait?.isOn
    this.#place?.forget(this)
    this.#abort.abort(reason)
  }

  /** The reply for one more client, which sent the same request. Undefined if it is too late for that. */
  join(client: ClientReply, request: DialectRequest): Promise<InteractionEnd> | undefined {
    if (this.#abort.signal.aborted) return undefined
    // However the first client gets it, this one sees nothing of it before its end.
    const heartbeat = request.stream && !client.isGone ? this.#newHeartbeat(client) : undefined
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

  /** Ends it if no backend is at it just now. */
  abortWaiting(reason: MillraceError): void {
    if (this.#wait?.isOn) this.abort(reason)
  }

  onWaitStart(): void {
    this.#waiting().start()
    if (this.#patience.end) this.abort(this.#patience.end)
  }

  onWaitEnd(): void {
    this.#wait?.stop()
  }

  #waiting(): Wait {
    return (this.#wait ??= new Wait(this.#patience.maxWaitMs, this.#onWaitedTooLong))
  }

  readonly #onWaitedTooLong = (leftMs: number): void => {
    const { maxWaitMs } = this.#patience
    this.abort(waitedTooLong(this.#question.model.name, { maxWaitMs, leftMs, cause: this.#wait?.cause }))
  }

  onFailedTry(_ms: number, error: unknown): void {
    this.#waiting().refused(error)
  }

  onParked(error: MillraceError): void {
    this.#waiting().parked(error)
  }

  /** One that waits for a backend may yet be told when to come again. */
  #newHeartbeat(client: ClientReply): Heartbeat {
    return new Heartbeat(client, { everyMs: this.#patience.beatMs, isUndecided: () => this.#wait?.isOn === true })
  }

  onEvent(event: ReplyEvent, resume: () => void): boolean {
    const text = this.#streamText(event)
    if (text === '' || !this.#client || this.#client.write(text, resume)) return true
    this.#resume = resume
    return false
  }

  onPartial(partial: PartialReply): void {
    this.#partial = partial
  }

  /** The client that asked first is gone. */
  readonly #onClientGone = (): void => {
    this.#client = undefined
    // Others may still wait for the reply.
    this.#resume?.()
    this.#leave()
  }

  #leave(): void {
    this.#audience -= 1
    if (this.#audience === 0) this.abort(clientGone(this.#wait?.cause))
  }

  #streamText(event: ReplyEvent): string {
    if (this.#stream) return this.#stream.event(event)
    this.#state = 'streaming'
    this.#client?.beginStream(noHeaders)
    this.#stream = this.#newStream()
    return this.#stream.start() + this.#stream.event(event)
  }

  #newStream(): ClientStream {
    const { dialect, request, body, unasked } = this.#question
    if (body !== undefined) return new PassedStream(dialect.api, unasked)
    return new TranslatedStream(dialect, this.#head(newReplyId(dialect.api), request))
  }

  readonly #onReply = (reply: ModelReply): void => {
    if (reply.status !== 'complete') {
      const plainer = this.#state === 'asking' ? this.#question.plainer(reply.error) : undefined
      if (plainer) {
        this.#question = plainer
        this.#ask()
        return
      }
      this.#recordLost(reply)
      this.#fail(reply.error, reply)
      return
    }
    const { dialect, capturesTokens, model, request } = this.#question
    this.#question.learn()
    const replyId = this.#replyIdOf(reply)
    const itemIds = this.#itemIdsOf(reply)
    const { hasInstructions } = request
    const name = {
      replyId,
      api: dialect.api,
      ...(itemIds && { itemIds }),
      ...(hasInstructions && { hasInstructions }),
    }
    this.#isRecorded = true
    const recorded = withUsage(this.#withPrompt(reply), request.messages, model.client.price)
    const lacking = capturesTokens ? 'missing' : 'unasked'
    this.#place?.recordReply(recorded, name, completeTokens(recorded, recorded.usage) ? 'complete' : lacking)
    const pending = this.#place?.written()
    if (!pending) {
      this.#deliver(reply, replyId)
      return
    }
    pending.then(() => this.#deliver(reply, replyId)).catch(this.#onFault)
  }

  /** The store failed, or we did: the client must not take the reply for recorded. */
  readonly #onFault = (thrown: unknown): void => {
    this.#fail(MillraceError.from(thrown, 'internal'))
  }

  /** What was sampled, and also that something was: of one that was given up under way nobody knows how much. */
  #recordLost(reply: BrokenReply): void {
    if (!this.#place) return
    const wasSampling = reply.status === 'aborted' && this.#wasOnWire && reply.tries > 0
    const partial = this.#withPrompt(this.#partial ?? nothingYet)
    if (!wasSampling && isEmpty(partial)) return
    const { dialect, model, request } = this.#question
    const usage = untoldUsage(partial, request.messages)
    const replyId = this.#stream?.replyId
    const name = { api: dialect.api, ...(replyId !== undefined && { replyId }) }
    this.#place.recordLost(partial, reply, { ...name, usage, cost: costOf(usage, model.client.price) })
  }

  /** A client that sent the prompt in tokens need not be told which they were, and older backends do not tell. */
  #withPrompt<Reply extends PartialReply>(reply: Reply): Reply {
    const { promptIds } = this.#question.request
    if (!promptIds || !reply.tokens || reply.tokens.promptIds) return reply
    return { ...reply, tokens: { ...reply.tokens, promptIds } }
  }

  #replyIdOf({ raw }: BackendReply): string {
    return this.#stream?.replyId ?? (raw && replyIdIn(raw.document)) ?? newReplyId(this.#question.dialect.api)
  }

  #itemIdsOf({ raw }: BackendReply): ItemIds | undefined {
    if (this.#stream) return this.#stream.itemIds
    return raw && this.#question.dialect.api === 'responses' ? itemIdsIn(raw.document) : undefined
  }

  #deliver(reply: CompleteReply, replyId: string): void {
    const client = this.#client
    if (client) {
      if (this.#stream) sendRest(client, this.#stream.end(reply))
      else this.#sendWholeReply(client, this.#question.request, { reply, replyId })
    }
    this.#settle({ kind: 'complete', reply, replyId }, client ? 200 : goneStatus)
  }

  /** To a client that has seen nothing of it: as the backend wrote it, if that is what it asked for. */
  #sendWholeReply(
    client: ClientReply,
    request: DialectRequest,
    { reply, replyId }: { readonly reply: CompleteReply; readonly replyId: string },
  ): void {
    if (reply.raw && !request.stream) sendWhole(client, this.#wholeText(reply.raw))
    else {
      const head = { ...this.#head(replyId, request), itemIds: this.#itemIdsOf(reply) }
      sendReply(client, this.#question.dialect, head, reply)
    }
  }

  /** For those who joined. They have seen nothing of it so far, so they get it from the beginning. */
  #answerAlso({ client, request, place }: Joined, answer: LiveAnswer): InteractionEnd {
    const { dialect } = this.#question
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

  /** As the backend wrote it, without what nobody but us has asked for. */
  #wholeText({ text, document }: NonNullable<BackendReply['raw']>): string {
    const { unasked } = this.#question
    return unasked ? JSON.stringify(unasked.without(document)) : text
  }

  #fail(error: MillraceError, reply?: BrokenReply): void {
    if (this.#state === 'ended') return
    const client = this.#client
    const place = this.#heartbeat?.isPromised || this.#state === 'streaming' ? 'in-stream' : 'instead'
    const status = client ? sendError(client, this.#question.dialect, error, place) : goneStatus
    this.#settle({ kind: 'broken', error, ...(reply && { reply }) }, status)
  }

  #settle(answer: LiveAnswer, status: number): void {
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

const nothingYet: PartialReply = { message: { role: 'assistant', content: null } }
