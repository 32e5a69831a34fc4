import { MillraceError, type WireError } from '../errors/index.ts'
import type { Message, MessageNode } from '../schema/index.ts'
import { messageJson } from '../apis/index.ts'

/** A session to be repeated by position: the n-th turn gets the n-th reply, its tool calls their recorded answers. */
export interface RecordedSession {
  readonly nodes: readonly MessageNode[]
  /** How many of the nodes are in the journal of this very attempt: they must be repeated as they are. Missing if it begins anew. */
  readonly journalled?: number
  /** The error that a turn beyond the last recorded one gets. If missing, such a turn is asked live. */
  readonly end?: WireError
}

export class RecordedTurns {
  readonly #replies: MessageNode[] = []
  /** Recorded messages that answered tool calls: before the first reply, after the first, after the second, and so on. */
  readonly #answers: MessageNode[][] = [[]]
  readonly #end: WireError | undefined
  /** Whether the recording ends with a reply and answers to its calls only. */
  #endsInCalls = false
  #asked = 0
  /** How many answers were given since the last turn. */
  #answered = 0

  constructor({ nodes, end }: RecordedSession) {
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

  /** Whether no live turn has been asked for yet. */
  get isWithin(): boolean {
    return this.#asked <= this.#replies.length
  }

  /** The reply to the next turn; undefined if it is to be asked live. Throws the error that the recording ended with. */
  nextReply(): MessageNode | undefined {
    const reply = this.#replies[this.#asked]
    this.#asked += 1
    this.#answered = 0
    if (!reply && this.#end) throw MillraceError.fromWire(this.#end)
    return reply
  }

  /** If the session goes on live, the message must equal the recorded one, which the recorded replies answer. */
  noteAnswer(message: Message): void {
    const recorded = this.#answers[this.#asked]?.[this.#answered]
    this.#answered += 1
    if (this.#end || !recorded || messageJson(recorded.message) === messageJson(message)) return
    const name = recorded.tool?.name ?? recorded.tools?.[0]?.name ?? 'a tool'
    throw new MillraceError(
      'replay_diverged',
      `${name} ran again for turn ${this.#asked} and gave a different answer: the recorded replies no longer apply`,
    )
  }

  /** The error that the recording ended with while the calls made now were running: nobody had got their answers. */
  get cutOff(): MillraceError | undefined {
    // `replay_diverged` stands for a recording without an error at its end: whether the answers were received is unknown.
    if (!this.#end || this.#end.code === 'replay_diverged' || !this.#endsInCalls) return undefined
    const isHere = this.#asked === this.#replies.length && this.#answered >= (this.#answers[this.#asked]?.length ?? 0)
    return isHere ? MillraceError.fromWire(this.#end) : undefined
  }

  /** The recorded answer `offset` answers after those already given in this turn; throws as `nextReply` does. */
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
