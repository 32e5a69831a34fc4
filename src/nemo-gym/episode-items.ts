import { hash } from 'node:crypto'
import { type OutputItem, outputItems } from '../apis/index.ts'
import { commonNumbers, numberPieces } from '../kit/index.ts'
import { type CompleteTokens, completeTokens } from '../rows/index.ts'
import {
  type AssistantMessage,
  type ContentPart,
  type JsonObject,
  type Message,
  type MessageNode,
  partsText,
  textOf,
} from '../schema/index.ts'

/** One item of an episode in the shape of Responses, with the tokens of the reply that it ends. */
export interface EpisodeItem {
  readonly item: OutputItem
  readonly tokens?: CompleteTokens
}

/** A node of a rollout, or only its message, as a record has it. */
export type EpisodeMessage = Pick<MessageNode, 'message'> & Partial<Pick<MessageNode, 'call' | 'tokens'>>

/**
 * Turns the messages of an episode into items, message by message. The last item of a reply carries its tokens, as long as each
 * prompt begins with all tokens before it: trainers cut the tokens of an episode into turns by that, and refuse anything else.
 */
export class EpisodeItems {
  readonly #episode: string
  #count = 0
  #isContiguous = true
  #last: CompleteTokens | undefined

  /** `episode` names the items: the same episode gives the same ids. */
  constructor(episode: string) {
    this.#episode = episode
  }

  /** Whether every prompt so far began with the tokens before it. If not, later tokens are left out. */
  get isContiguous(): boolean {
    return this.#isContiguous
  }

  /** The items of the next message. Those of a reply are its reasoning, its text and its calls, in this order. */
  next({ message, call, tokens }: EpisodeMessage): EpisodeItem[] {
    this.#count += 1
    if (message.role !== 'assistant') return [{ item: givenItem(message, this.#name()) }]
    const items = outputItems(
      { id: `resp_${this.#name()}` },
      { message, finishReason: call?.finishReason ?? 'stop' },
      false,
    ).map((item): EpisodeItem => ({ item }))
    const complete = call && tokens && completeTokens({ tokens }, call.usage)
    const last = items.pop()
    if (last) items.push(complete && this.#takesTokens(complete) ? { ...last, tokens: complete } : last)
    return items
  }

  #takesTokens(tokens: CompleteTokens): boolean {
    if (!areFinite(tokens.logprobs)) return false
    if (this.#last && !goesOn(this.#last, tokens.promptIds)) this.#isContiguous = false
    this.#last = tokens
    return this.#isContiguous
  }

  /** In the form of our own reply ids: whoever reads the items back knows which of them were one reply. */
  #name(): string {
    return hash('sha256', `${this.#episode}/${this.#count}`, 'hex').slice(0, 30)
  }
}

export function episodeItems(
  episode: string,
  messages: Iterable<EpisodeMessage>,
): { readonly items: readonly EpisodeItem[]; readonly isContiguous: boolean } {
  const episodes = new EpisodeItems(episode)
  const items = Array.from(messages, (message) => episodes.next(message)).flat()
  return { items, isContiguous: episodes.isContiguous }
}

/** An item as JSON, in pieces: token ids are long lists. */
export function* itemPieces({ item, tokens }: EpisodeItem): Generator<string, void, void> {
  const json = JSON.stringify(item)
  if (!tokens) {
    yield json
    return
  }
  yield `${json.slice(0, -1)},"prompt_token_ids":`
  yield* numberPieces(tokens.promptIds)
  yield ',"generation_token_ids":'
  yield* numberPieces(tokens.ids)
  yield ',"generation_log_probs":'
  yield* numberPieces(tokens.logprobs)
  yield '}'
}

/** Items that no reply has. OpenAI's clients of streams want an id of them, too; it begins as that of their kind must. */
function givenItem(message: Exclude<Message, AssistantMessage>, name: string): JsonObject {
  if (message.role !== 'tool') {
    return { id: `msgu_${name}`, type: 'message', role: message.role, content: inputContent(message.content) }
  }
  return { id: `fco_${name}`, type: 'function_call_output', call_id: message.tool_call_id, output: textOf(message) }
}

function inputContent(content: string | readonly ContentPart[]): string | JsonObject[] {
  if (typeof content === 'string') return content
  if (content.every(({ type }) => type === 'text')) return partsText(content)
  return content.flatMap((part): JsonObject[] => {
    if (part.type === 'text') return [{ type: 'input_text', text: part.text }]
    if (part.type !== 'image_url') return []
    const { url, detail = 'auto' } = part.image_url
    return [{ type: 'input_image', image_url: url, detail }]
  })
}

function goesOn({ promptIds, ids }: CompleteTokens, next: Int32Array): boolean {
  const { length } = promptIds
  return commonNumbers(promptIds, next) === length && commonNumbers(ids, next.subarray(length)) === ids.length
}

function areFinite(logprobs: Float32Array): boolean {
  return logprobs.every((logprob) => Number.isFinite(logprob))
}
