import type { BackendReply, PartialReply } from '../backend.ts'
import { malformedReply } from './broken-reply.ts'
import { parseEvent } from './_chat-stream.ts'
import type { AnswerContext, AnswerReader, StreamAssembler } from './dialect.ts'
import type { EventDraft } from './event-draft.ts'
import { ReplyDraft } from './_reply-draft.ts'
import { readReportedError, reportedError } from './reported-error.ts'
import type { Source } from './source.ts'
import { isObject, tokenCount } from './foreign-json.ts'

interface GenerateWire {
  text?: unknown
  output_ids?: unknown
  prompt_token_ids?: unknown
  meta_info?: unknown
  error?: unknown
}

interface MetaWire {
  finish_reason?: unknown
  prompt_tokens?: unknown
  completion_tokens?: unknown
  cached_tokens?: unknown
  reasoning_tokens?: unknown
  /** Each entry is `[log-probability, id, text]`. */
  output_token_logprobs?: unknown
  /** The number of all tokens so far, in both ways of streaming. */
  output_token_logprobs_length?: unknown
  routed_experts?: unknown
}

/** Reads what SGLang answers in its own API. */
export class GenerateReader implements AnswerReader {
  /** False: only Chat's lists of tokens are looked for in bytes; those of this API are read from the document. */
  readonly hasTokens = false
  readonly repeatsItself = true
  readonly #source: Source

  constructor(source: Source) {
    this.#source = source
  }

  parse(body: unknown, context: AnswerContext): BackendReply {
    if (!isObject(body)) throw malformedReply(this.#source, 'it is no JSON object')
    const reading = new GenerateReading(new ReplyDraft(this.#source, context))
    reading.add(body)
    return reading.reply()
  }

  assemble(context: AnswerContext): StreamAssembler {
    return new GenerateReading(new ReplyDraft(this.#source, context))
  }
}

/**
 * A reply, whole or in events. Each event repeats everything before it, unless the server was started with
 * `--incremental-streaming-output`: then it sends only what is new. The number of tokens so far tells the two apart.
 */
class GenerateReading implements StreamAssembler {
  readonly #draft: ReplyDraft

  constructor(draft: ReplyDraft) {
    this.#draft = draft
  }

  get hasOutput(): boolean {
    return this.#draft.content !== null && this.#draft.content !== ''
  }

  get isComplete(): boolean {
    return this.#draft.finish !== ''
  }

  onEvent(data: string, event?: EventDraft): void {
    if (data === '[DONE]') return
    const document = parseEvent(data, this.#draft.source)
    event?.parsed(document, data)
    this.add(document)
  }

  add(document: object): void {
    const draft = this.#draft
    const wire = document as GenerateWire
    if (wire.error !== undefined && wire.error !== null) {
      throw reportedError(draft.source, { reported: readReportedError(document) })
    }
    if (!isObject(wire.meta_info)) throw malformedReply(draft.source, 'it has no meta_info')
    const meta = wire.meta_info as MetaWire
    const isRepeating = this.#addTokens(wire, meta)
    if (typeof wire.text === 'string') this.#addText(wire.text, isRepeating)
    draft.usage = {
      calls: 1,
      input: tokenCount(meta.prompt_tokens),
      cachedInput: tokenCount(meta.cached_tokens),
      output: tokenCount(meta.completion_tokens),
      reasoning: tokenCount(meta.reasoning_tokens),
    }
    if (isObject(meta.finish_reason) && 'type' in meta.finish_reason) draft.finish = String(meta.finish_reason.type)
  }

  reply(): BackendReply {
    this.#draft.content ??= ''
    return this.#draft.reply()
  }

  partial(): PartialReply {
    return this.#draft.partial()
  }

  #addText(text: string, isRepeating: boolean): void {
    const draft = this.#draft
    const before = draft.content ?? ''
    // If no tokens come along, only the text can tell whether it repeats.
    const repeats = isRepeating || (draft.tokenCount === 0 && text.startsWith(before))
    draft.content = repeats ? text : before + text
  }

  /** Adds the tokens of a document. True if the document repeats what earlier ones said. */
  #addTokens({ output_ids: ids, prompt_token_ids: promptIds }: GenerateWire, meta: MetaWire): boolean {
    const draft = this.#draft
    const known = draft.tokenCount
    const { output_token_logprobs: pairs } = meta
    const listed: readonly unknown[] = Array.isArray(pairs) ? pairs : Array.isArray(ids) ? ids : []
    const total = tokenCount(meta.output_token_logprobs_length ?? meta.completion_tokens)
    const isRepeating = known > 0 && known + listed.length > total
    if (isRepeating && listed.length < known) {
      throw malformedReply(draft.source, `an event has ${listed.length} tokens of ${total}, after ${known}`)
    }
    const added = isRepeating ? listed.slice(known) : listed
    if (Array.isArray(pairs)) draft.tokens.addPairs(added)
    else if (Array.isArray(ids)) draft.tokens.addIds(added)
    if (Array.isArray(promptIds)) draft.tokens.setPromptIds(promptIds)
    draft.readVersion(meta)
    draft.endTokens(known)
    const { routed_experts: experts } = meta
    if (experts !== undefined && experts !== null) draft.tokens.setExperts(experts)
    return isRepeating
  }
}
