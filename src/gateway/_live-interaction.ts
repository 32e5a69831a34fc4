import { newReplyId, type DialectRequest, type ReplyHead } from '../dialects/index.ts'
import { MillraceError } from '../errors/index.ts'
import { AbortSource } from '../kit/index.ts'
import type {
  BackendReply,
  BrokenReply,
  CompleteReply,
  ModelReply,
  PartialReply,
  ReplyEvent,
  ReplySink,
} from '../inference/index.ts'
import type { ItemIds } from '../schema/index.ts'
import type { ClientStream } from './_client-stream.ts'
import { itemIdsIn } from './_item-ids.ts'
import { PassedStream, replyIdIn } from './_passed-stream.ts'
import type { Question } from './_question.ts'
import { sendError, sendReply, sendRest, sendWhole } from './_send-reply.ts'
import type { SessionPlace } from './_session-place.ts'
import { TranslatedStream } from './_translated-stream.ts'
import type { ClientReply } from './client-reply.ts'

/** What came of it. `reply` is missing where no model was asked for it. */
export type Answer =
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

/** A client that is gone gets no status; this is what logs say instead. */
export const goneStatus = 499

/**
 * One request of a client and the reply to it. What the backend sends goes to the client as it comes, except for its end:
 * that is held back until the reply is recorded, so that a client that saw a complete reply finds it on record whatever
 * happens next. Clients that repeat the request wait for the same reply. When nobody waits any more, it is given up.
 */
export class LiveInteraction implements ReplySink {
  /** Changes if the backend refuses what was asked of it for the record. */
  #question: Question
  readonly #place: SessionPlace | undefined
  readonly #abort = new AbortSource()
  readonly #end = Promise.withResolvers<{ readonly answer: LiveAnswer; readonly status: number }>()
  #client: ClientReply | undefined
  readonly #createdAt = Math.floor(Date.now() / 1000)
  /** Clients that wait for the reply. */
  #audience = 1
  #state: 'asking' | 'streaming' | 'ended' = 'asking'
  #stream: ClientStream | undefined
  #partial: PartialReply | undefined
  /** Lets the backend go on, while the client is the one that is waited for. */
  #resume: (() => void) | undefined

  constructor(question: Question, client: ClientReply, place?: SessionPlace) {
    this.#question = question
    this.#client = client
    this.#place = place
  }

  /** Settles when the client has got all it gets. Never rejects. */
  get ended(): Promise<InteractionEnd> {
    return this.#end.promise
  }

  start(): Promise<InteractionEnd> {
    this.#place?.enter(this)
    if (this.#client?.isGone) this.#onClientGone()
    else this.#client?.onGone(this.#onClientGone)
    this.#ask()
    return this.#end.promise
  }

  #ask(): void {
    const { model } = this.#question
    model.client
      .call(this.#question.toModel(this), { signal: this.#abort.signal })
      .then(this.#onReply)
      .catch(this.#onFault)
  }

  /** Ends it whoever still waits for it. */
  abort(reason: MillraceError): void {
    if (this.#state === 'ended') return
    this.#place?.forget(this)
    this.#abort.abort(reason)
  }

  /** The reply for one more client, which sent the same request. Undefined if it is too late for that. */
  join(client: ClientReply, request: DialectRequest): Promise<InteractionEnd> | undefined {
    if (this.#abort.signal.aborted) return undefined
    if (!client.isGone) {
      this.#audience += 1
      client.onGone(() => this.#leave())
    }
    return this.#end.promise.then(({ answer }) => {
      client.onGone(undefined)
      return this.#answerAlso(client, request, answer)
    })
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
    if (this.#audience === 0) this.abort(new MillraceError('cancelled', 'the client went away'))
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
    const { dialect, capturesTokens } = this.#question
    this.#question.learn()
    const replyId = this.#replyIdOf(reply)
    const itemIds = this.#itemIdsOf(reply)
    const name = { replyId, api: dialect.api, ...(itemIds && { itemIds }) }
    const recorded = this.#withPrompt(reply)
    this.#place?.recordReply(recorded, name, capturesTokens && !hasTokens(recorded))
    const pending = this.#place?.durable()
    if (pending) pending.then(() => this.#deliver(reply, replyId)).catch(this.#onFault)
    else this.#deliver(reply, replyId)
  }

  /** The store failed, or we did: the client must not take the reply for recorded. */
  readonly #onFault = (thrown: unknown): void => {
    this.#fail(MillraceError.from(thrown, 'internal'))
  }

  #recordLost(reply: BrokenReply): void {
    if (!this.#partial) return
    const replyId = this.#stream?.replyId
    this.#place?.recordLost(this.#withPrompt(this.#partial), reply, {
      api: this.#question.dialect.api,
      ...(replyId !== undefined && { replyId }),
    })
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
      const { dialect, request } = this.#question
      if (this.#stream) sendRest(client, this.#stream.end(reply))
      else if (reply.raw && !request.stream) sendWhole(client, this.#rawText(reply.raw))
      else sendReply(client, dialect, this.#head(replyId, request), reply)
    }
    this.#settle({ kind: 'complete', reply, replyId }, client ? 200 : goneStatus)
  }

  /** For those who joined. They have seen nothing of it so far, so they get it from the beginning. */
  #answerAlso(client: ClientReply, request: DialectRequest, answer: LiveAnswer): InteractionEnd {
    const { dialect } = this.#question
    const { isGone } = client
    if (answer.kind === 'broken') {
      const { error } = answer
      const status = isGone ? goneStatus : sendError(client, dialect, error)
      return { answer: { kind: 'broken', error }, status }
    }
    const { replyId, reply } = answer
    if (!isGone) sendReply(client, dialect, this.#head(replyId, request), reply)
    return { answer: { kind: 'complete', replyId }, status: isGone ? goneStatus : 200 }
  }

  #rawText({ text, document }: NonNullable<BackendReply['raw']>): string {
    const { unasked } = this.#question
    return unasked ? JSON.stringify(unasked.without(document)) : text
  }

  #fail(error: MillraceError, reply?: BrokenReply): void {
    if (this.#state === 'ended') return
    const client = this.#client
    const place = this.#state === 'streaming' ? 'in-stream' : 'instead'
    const status = client ? sendError(client, this.#question.dialect, error, place) : goneStatus
    this.#settle({ kind: 'broken', error, ...(reply && { reply }) }, status)
  }

  #settle(answer: LiveAnswer, status: number): void {
    this.#state = 'ended'
    this.#client?.onGone(undefined)
    this.#place?.leave(this)
    this.#end.resolve({ answer, status })
  }

  #head(id: string, request: DialectRequest): ReplyHead {
    return { id, model: request.model, createdAt: this.#createdAt, request }
  }
}

/** All that a trainer needs of them. */
function hasTokens({ tokens }: BackendReply): boolean {
  return tokens?.promptIds !== undefined && tokens.ids.length > 0 && tokens.ids.length === tokens.logprobs.length
}

const noHeaders: Readonly<Record<string, string>> = {}
