import { heapShare } from '../../kit/index.ts'
import { KnownPrompt } from './_known-prompt.ts'
import type { ReplyBytes } from './reply-bytes.ts'
import { scanReply, type PromptReader, type ScannedReply } from './token-scanner.ts'

/** Conversations known per session: an agent's and its subagents'. Beyond that, the least recently used one is parsed anew. */
const maxConversations = 4
/** A prompt that has grown beyond this, some half a million tokens, is parsed anew each time. */
const maxPromptBytes = 4 * 1024 * 1024
/**
 * The bound for all sessions together. Beyond it, the least recently used sessions are forgotten, and their prompts parsed
 * anew.
 */
const defaultMaxBytes = heapShare(64 * 1024 * 1024)

/** The key as vLLM writes it. A reply with spaces in it is not recognised, and goes to a thread. */
const promptKey = Buffer.from('"prompt_token_ids":[')

/** The prompts of one session, one for each conversation in it, the most recently used one last. */
class SessionPrompts implements PromptReader {
  readonly #prompts: KnownPrompt[] = []

  get bytes(): number {
    return this.#prompts.reduce((sum, { bytes }) => sum + bytes, 0)
  }

  get longest(): number {
    return this.#prompts.reduce((longest, { textLength }) => Math.max(longest, textLength), 0)
  }

  /** Finds the longest known prompt that the text at `at` begins with. */
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
    // Removes the prompts that this one continues: another thread has read it whole.
    for (const prompt of this.#prompts.filter((each) => each.begins(text))) this.#remove(prompt)
    if (this.#prompts.length === maxConversations) this.#prompts.shift()
    this.#prompts.push(new KnownPrompt(text, ids))
  }

  #remove(prompt: KnownPrompt): void {
    this.#prompts.splice(this.#prompts.indexOf(prompt), 1)
  }
}

/**
 * Remembers the prompts of sessions, for servers that write a prompt's token ids out in every reply: else a conversation of
 * fifty turns would be parsed fifty times, though all but its last turn is known. The memory only maps text to ids, so
 * nothing in it can become wrong; unknown prompts are parsed.
 */
export class PromptMemory {
  readonly #maxBytes: number
  /** Sessions used since `#older` was set aside. They are not reordered with each use: see `ArraySet` for what that costs. */
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
   * How many bytes of a reply need not be parsed, because they are the prompt of a known conversation. Returns 0 without a
   * search if that could not be more than `worth`, because a search has to join the pieces of a long reply.
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

  /** Adds a prompt that a decode thread has read. */
  learn(session: string, text: Uint8Array, ids: Int32Array<ArrayBuffer>): void {
    this.#using(session, (prompts) => prompts.add(text, ids))
  }

  /** Drops a session that has ended. */
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
      // Most servers write no prompts: their sessions get no entry.
      if (!recent && prompts.bytes > 0) this.#recent.set(session, prompts)
      if (this.#recentBytes > this.#maxBytes / 2) {
        this.#older = this.#recent
        this.#recent = new Map()
        this.#recentBytes = 0
      }
    }
  }
}
