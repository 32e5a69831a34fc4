import { type BackendReply, type ContinuedTokens, messageJson } from '../apis/index.ts'
import { commonNumbers } from '../kit/index.ts'
import type { Message, TokenRecord, Usage } from '../schema/index.ts'

type TurnIds = Required<Pick<TokenRecord, 'promptIds' | 'ids'>>

/** Whether all tokens of a turn are known, and how they follow those of the turn before it. */
type TurnUsage = Pick<Usage, 'captured' | 'laterTurns' | 'driftedTurns' | 'driftedTokens'>

/**
 * How many tokens of an earlier prompt and its reply a later prompt has not at its beginning: those from the first difference
 * on. 0 if it begins with all of them. Otherwise a new row repeats the conversation, and these tokens are not in it as they were.
 */
export function driftedTokens({ promptIds, ids }: TurnIds, prompt: Int32Array): number {
  const common = commonNumbers(promptIds, prompt)
  if (common < promptIds.length) return promptIds.length - common + ids.length
  return ids.length - commonNumbers(ids, prompt.subarray(common))
}

/** The place of a reply: how many messages end with it, and where its tokens are. */
interface ReplyPlace {
  readonly count: number
  readonly start: number
  readonly end: number
}

export interface NotedTurn {
  /** What was asked. It may have grown since: `length` is the number of messages then. */
  readonly messages: readonly Message[]
  readonly length: number
  readonly reply: Pick<BackendReply, 'message' | 'tokens' | 'usage'>
}

interface LastTurn extends NotedTurn {
  readonly tokens: TurnIds
}

/** Whether a reply came with the ids and log-probabilities of all its tokens. */
export function hasAllTokens({ tokens, usage }: Pick<BackendReply, 'tokens' | 'usage'>): boolean {
  if (!tokens || tokens.ids.length === 0) return false
  return tokens.ids.length >= usage.output && tokens.logprobs.length === tokens.ids.length
}

/**
 * The tokens of a session's last reply, and the places of earlier replies in them. A turn that is asked with another history, as
 * a context policy makes it, goes on from the last reply whose history is still the same, or from none.
 */
export class TokenHistory {
  #last: LastTurn | undefined
  /** The replies that the last prompt holds unchanged, and the last reply itself. */
  #places: readonly ReplyPlace[] = []

  /** The tokens of the longest beginning of these messages that ends with a reply. */
  before(messages: readonly Message[], length = messages.length): ContinuedTokens | undefined {
    const { tokens, known } = this.#known(messages, length)
    const place = tokens && this.#places.findLast(({ count }) => count <= known)
    if (!place) return undefined
    const { count, start, end } = place
    const { promptIds, ids } = tokens
    if (start === promptIds.length) return { count, promptIds, ids }
    return { count, promptIds: promptIds.subarray(0, start), ids: promptIds.subarray(start, end) }
  }

  /** Notes a reply. One without all its tokens leaves the reply before it in its place. */
  note(turn: NotedTurn): TurnUsage {
    const { messages, length, reply } = turn
    const { promptIds, ids } = reply.tokens ?? {}
    if (!ids || !hasAllTokens(reply)) return { captured: 0 }
    if (!promptIds) return { captured: 1 }
    const earlier = this.before(messages, length)
    const drifted = earlier ? driftedTokens(earlier, promptIds) : 0
    const kept = earlier ? earlier.promptIds.length + earlier.ids.length - drifted : 0
    const places = this.#places.filter(({ count, end }) => count <= (earlier?.count ?? 0) && end <= kept)
    this.#places = [...places, { count: length + 1, start: promptIds.length, end: promptIds.length + ids.length }]
    this.#last = { ...turn, tokens: { promptIds, ids } }
    if (!earlier) return { captured: 1 }
    if (drifted === 0) return { captured: 1, laterTurns: 1 }
    return { captured: 1, laterTurns: 1, driftedTurns: 1, driftedTokens: drifted }
  }

  /** How many messages are the same as those of the last reply, itself included. */
  #known(
    messages: readonly Message[],
    length: number,
  ): { readonly known: number; readonly tokens: TurnIds | undefined } {
    if (!this.#last) return { known: 0, tokens: undefined }
    const { messages: before, length: lengthBefore, reply, tokens } = this.#last
    const most = Math.min(length, lengthBefore)
    let known = before === messages ? most : 0
    while (known < most && isSame(messages[known], before[known])) known += 1
    if (known === lengthBefore && known < length && isSame(messages[known], reply.message)) known += 1
    return { known, tokens }
  }
}

/** A context policy may make a message anew in each turn. */
function isSame(one: Message | undefined, other: Message | undefined): boolean {
  if (one === other) return true
  return one !== undefined && other !== undefined && messageJson(one) === messageJson(other)
}
