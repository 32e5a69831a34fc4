import type { ContinuedTokens } from '../../apis/index.ts'
import { heapShare } from '../../kit/index.ts'

type TurnIds = Pick<ContinuedTokens, 'promptIds' | 'ids'>

/** Enough for some 25 million tokens of conversations under way. Others are read from the store when they go on. */
const defaultMaxBytes = heapShare(256 * 1024 * 1024)
/** A token's id, and its text in the JSON of a prompt. */
const bytesPerToken = 10

/** The tokens of the last replies of all sessions, for models whose prompts go on from them. The least recently used are forgotten. */
export class ReplyTokens {
  readonly #maxBytes: number
  readonly #kept = new Map<string, TurnIds>()
  #bytes = 0

  constructor(maxBytes = defaultMaxBytes) {
    this.#maxBytes = maxBytes
  }

  find(session: string, node: number): TurnIds | undefined {
    return this.#kept.get(keyOf(session, node))
  }

  /** Keeps the tokens of a reply in place of those of the reply that it goes on from. */
  keep(
    session: string,
    node: number,
    { tokens, after }: { readonly tokens: TurnIds; readonly after: number | undefined },
  ): void {
    if (after !== undefined) this.#drop(keyOf(session, after))
    this.#kept.set(keyOf(session, node), tokens)
    this.#bytes += bytesOf(tokens)
    for (const oldest of this.#kept.keys()) {
      if (this.#bytes <= this.#maxBytes) break
      this.#drop(oldest)
    }
  }

  #drop(key: string): void {
    const tokens = this.#kept.get(key)
    if (!tokens) return
    this.#kept.delete(key)
    this.#bytes -= bytesOf(tokens)
  }
}

function keyOf(session: string, node: number): string {
  return `${session}/${node}`
}

function bytesOf({ promptIds, ids }: TurnIds): number {
  return (promptIds.length + ids.length) * bytesPerToken
}
