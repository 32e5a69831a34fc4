import { heapShare } from '../../kit/index.ts'
import { KnownPrompt } from './_known-prompt.ts'
import type { ReplyBytes } from './reply-bytes.ts'
import { scanReply, type PromptReader, type ScannedReply } from './token-scanner.ts'

/** An agent, and those it has working for it in the same session. Of more, the one not heard of for longest is read anew. */
const maxConversations = 4
/** A prompt that has grown beyond this, some half a million tokens, is read anew each time. */
const maxPromptBytes = 4 * 1024 * 1024
/** Of all sessions together. Beyond it, those are forgotten that were not asked for longest: theirs are read anew. */
const defaultMaxBytes = heapShare(64 * 1024 * 1024)

/** As vLLM writes it. A reply with spaces there is as well read by a thread. */
const promptKey = Buffer.from('"prompt_token_ids":[')

/** The prompts of one session, one for each conversation in it. The one that was used last is the last. */
class SessionPrompts implements PromptReader {
  readonly #prompts: KnownPrompt[] = []

  get bytes(): number {
    return this.#prompts.reduce((sum, { bytes }) => sum + bytes, 0)
  }

  get longest(): number {
    return this.#prompts.reduce((longest, { textLength }) => Math.max(longest, textLength), 0)
  }

  /** The longest that the text there begins with. */
  find(bytes: Uint8Array, at: number): { readonly prompt: KnownPrompt; readonly end: number } | undefined {
    let best: KnownPrompt | undefined
    let bestEnd = -1
    for (const prompt of this.#prompts) {
      if (at + prompt.textLength <= bestEnd) continue
      const end = prompt.endIn(bytes, at)
      if (end > bestEnd) [best, bestEnd] = [prompt, end]
    }
    if (!best) return undefined
    this.#remove(best)
    if (best.textLength > maxPromptBytes) return undefined
    this.#prompts.push(best)
    return { prompt: best, end: bestEnd }
  }

  add(text: Uint8Array, ids: Int32Array<ArrayBuffer>): void {
    if (ids.length === 0 || text.length > maxPromptBytes) return
    // What it goes on from was read elsewhere.
    for (const prompt of this.#prompts.filter((each) => each.begins(text))) this.#remove(prompt)
    if (this.#prompts.length === maxConversations) this.#prompts.shift()
    this.#prompts.push(new KnownPrompt(text, ids))
  }

  #remove(prompt: KnownPrompt): void {
    this.#prompts.splice(this.#prompts.indexOf(prompt), 1)
  }
}

/**
 * What the prompts of sessions were, for servers that write a prompt's token ids out in every reply: a conversation of fifty
 * turns would be read fifty times, when all but the last turn of it is known. It knows only which text means which ids, so
 * nothing that is in it can be wrong; and what is not in it is read.
 */
export class PromptMemory {
  readonly #maxBytes: number
  /** Those that were used since the older ones were set aside. Not moved with each use: see `Roster` for what that costs. */
  #recent = new Map<string, SessionPrompts>()
  #older = new Map<string, SessionPrompts>()
  #recentBytes = 0

  constructor(maxBytes = defaultMaxBytes) {
    this.#maxBytes = maxBytes
  }

  /** Takes the long lists out of a reply, as `scanReply` does. */
  scan(session: string, bytes: Uint8Array): ScannedReply {
    return this.#using(session, (prompts) => scanReply(bytes, prompts))
  }

  /**
   * How much of a reply need not be read, because it is the prompt of a conversation that is known. Not looked for where it could not
   * be more than `worth`, because a long reply would have to be put in one piece for it.
   */
  knownBytes(session: string, body: ReplyBytes, worth = 0): number {
    const prompts = this.#recent.get(session) ?? this.#older.get(session)
    if (!prompts || prompts.longest <= worth) return 0
    const bytes = body.joined()
    const at = bytes.indexOf(promptKey)
    if (at === -1) return 0
    const start = at + promptKey.length
    const known = prompts.find(bytes, start)
    return known ? known.end - start : 0
  }

  /** What somebody else has read. */
  learn(session: string, text: Uint8Array, ids: Int32Array<ArrayBuffer>): void {
    this.#using(session, (prompts) => prompts.add(text, ids))
  }

  /** It said its last. */
  forget(session: string): void {
    this.#recentBytes -= this.#recent.get(session)?.bytes ?? 0
    this.#recent.delete(session)
    this.#older.delete(session)
  }

  #using<Result>(session: string, use: (prompts: SessionPrompts) => Result): Result {
    const recent = this.#recent.get(session)
    const prompts = recent ?? this.#older.get(session) ?? new SessionPrompts()
    const before = recent?.bytes ?? 0
    try {
      return use(prompts)
    } finally {
      this.#recentBytes += prompts.bytes - before
      // Most servers write no prompts, and their sessions take no place here.
      if (!recent && prompts.bytes > 0) this.#recent.set(session, prompts)
      if (this.#recentBytes > this.#maxBytes / 2) {
        this.#older = this.#recent
        this.#recent = new Map()
        this.#recentBytes = 0
      }
    }
  }
}
