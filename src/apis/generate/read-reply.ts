import type { BackendReply, PartialReply } from '../backend.ts'
import { malformedReply, type Source } from '../errors/reply-errors.ts'
import {
  type AnswerContext,
  type ReplyParser,
  type EventDraft,
  parseEvent,
  type StreamAssembler,
} from '../client-side.ts'
import { ReplyDraft, tokenCount } from '../reply-draft.ts'
import { reportedIn } from '../errors/reported-error.ts'
import { isJsonObject, type JsonObject } from '../../schema/index.ts'

export class GenerateReader implements ReplyParser {
  /** False: only Chat's lists of tokens are looked for in bytes; those of this API are read from the document. */
  readonly hasTokens = false
  readonly repeatsItself = true
  readonly #source: Source

  constructor(source: Source) {
    this.#source = source
  }

  parse(body: unknown, context: AnswerContext): BackendReply {
    if (!isJsonObject(body)) throw malformedReply(this.#source, 'it is not a JSON object')
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

  add(document: JsonObject): void {
    const draft = this.#draft
    const { error, meta_info: meta, text } = document
    if (error !== undefined && error !== null) {
      throw reportedIn(draft.source, document)
    }
    if (!isJsonObject(meta)) throw malformedReply(draft.source, 'it has no meta_info')
    const isRepeating = this.#addTokens(document, meta)
    if (typeof text === 'string') this.#addText(text, isRepeating)
    draft.usage = {
      calls: 1,
      input: tokenCount(meta['prompt_tokens']),
      cachedInput: tokenCount(meta['cached_tokens']),
      output: tokenCount(meta['completion_tokens']),
      reasoning: tokenCount(meta['reasoning_tokens']),
    }
    const { finish_reason: finish } = meta
    if (!isJsonObject(finish)) return
    const { type, matched } = finish
    if (typeof type === 'string') draft.finish = type
    // The number of a token that has ended the reply is no stop sequence.
    if (typeof matched === 'string') draft.stopSequence = matched
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
    const repeats = isRepeating || (draft.tokens.length === 0 && text.startsWith(before))
    draft.content = repeats ? text : before + text
  }

  /** Adds the tokens of a document. True if the document repeats what earlier ones said. */
  #addTokens({ output_ids: ids, prompt_token_ids: promptIds }: JsonObject, meta: JsonObject): boolean {
    const draft = this.#draft
    const known = draft.tokens.length
    const { output_token_logprobs: pairs } = meta
    const listed: readonly unknown[] = Array.isArray(pairs) ? pairs : Array.isArray(ids) ? ids : []
    const total = tokenCount(meta['output_token_logprobs_length'] ?? meta['completion_tokens'])
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
