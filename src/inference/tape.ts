import { MillraceError, type WireError } from '../errors/index.ts'
import type { Message, MessageNode } from '../schema/index.ts'
import { messageJson } from './wire/message-json.ts'

/**
 * What a session heard once, to be heard again by place: the n-th turn gets the n-th reply, and its tool calls get their
 * answers, whatever was said in between. A plain value.
 */
export interface Tape {
  /** In the order they were recorded. */
  readonly nodes: readonly MessageNode[]
  /** What a question beyond the last one gets. Without it such a question is a live one. */
  readonly end?: WireError
}

/** Walks along a tape, turn by turn. */
export class TapeReader {
  readonly #replies: MessageNode[] = []
  /** Messages that answered tool calls: before the first reply, after the first, after the second, and so on. */
  readonly #answers: MessageNode[][] = [[]]
  readonly #end: WireError | undefined
  /** Whether nothing was said after the last reply but answers to its calls. */
  #endsInCalls = false
  /** Turns that were asked for. */
  #asked = 0
  /** Answers that were given since the last turn. */
  #answered = 0

  constructor({ nodes, end }: Tape) {
    this.#end = end
    for (const node of nodes) {
      if (node.sampled && node.call) {
        this.#replies.push(node)
        this.#answers.push([])
        this.#endsInCalls = true
      } else if (node.tool ?? node.tools) this.#answers.at(-1)?.push(node)
      else this.#endsInCalls = false
    }
  }

  /** Whether nothing live has been asked for yet. */
  get isWithin(): boolean {
    return this.#asked <= this.#replies.length
  }

  /** The reply to the next turn; undefined if it is to be asked for. Throws what the recording ended with. */
  nextReply(): MessageNode | undefined {
    const reply = this.#replies[this.#asked]
    this.#asked += 1
    this.#answered = 0
    if (!reply && this.#end) throw MillraceError.fromWire(this.#end)
    return reply
  }

  /**
   * A message that answers tool calls was said. Where the recording is gone on from it must be the recorded one: the next
   * replies were given to that.
   */
  noteAnswer(message: Message): void {
    const recorded = this.#answers[this.#asked]?.[this.#answered]
    this.#answered += 1
    if (this.#end || !recorded || messageJson(recorded.message) === messageJson(message)) return
    const name = recorded.tool?.name ?? recorded.tools?.[0]?.name ?? 'a tool'
    throw new MillraceError(
      'replay_diverged',
      `${name} was run again for turn ${this.#asked} and did not answer as it had: the recorded replies do not fit any more`,
    )
  }

  /** What the recording ended with, if it did while the calls that come now were at work: their answers came to nobody. */
  get cutOff(): MillraceError | undefined {
    // Where it ended by itself nobody knows whether it had heard them.
    if (!this.#end || this.#end.code === 'replay_diverged' || !this.#endsInCalls) return undefined
    const isHere = this.#asked === this.#replies.length && this.#answered >= (this.#answers[this.#asked]?.length ?? 0)
    return isHere ? MillraceError.fromWire(this.#end) : undefined
  }

  /** The recorded answer that stands `offset` answers after those given in this turn; throws as `nextReply` does. */
  answer(offset: number): MessageNode | undefined {
    const answer = this.#answers[this.#asked]?.[this.#answered + offset]
    if (answer || !this.#end) return answer
    if (this.#asked >= this.#replies.length) throw MillraceError.fromWire(this.#end)
    throw new MillraceError(
      'replay_diverged',
      `in turn ${this.#asked} a tool was called whose answer is not in the recording`,
    )
  }
}
