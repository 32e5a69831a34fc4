import { growingIds, type PromptReader, type ScannedReply, scanReply } from '../../apis/index.ts'
import { heapShare, isDigit } from '../../kit/index.ts'

/** Conversations known per session: an agent's and its subagents'. Beyond that, the least recently used one is parsed anew. */
const maxConversations = 4
/** A prompt that has grown beyond this, some half a million tokens, is parsed anew each time. */
const maxPromptBytes = 4 * 1024 * 1024
/** The bound for all sessions together: beyond it the least recently used ones are forgotten. */
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
 * Remembers the prompts of sessions, for servers that write a prompt's token ids out in every reply: only the new part of a
 * conversation is parsed. It maps text to ids, so nothing in it can become wrong.
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

  scan(session: string, bytes: Uint8Array): ScannedReply {
    return this.#using(session, (prompts) => scanReply(bytes, prompts))
  }

  /** The bytes of a reply that are a known prompt; 0 without a search, which joins the pieces, if that is at most `worth`. */
  knownBytes(session: string, body: { joined(): Buffer }, worth = 0): number {
    const prompts = this.#recent.get(session) ?? this.#older.get(session)
    if (!prompts || prompts.longest <= worth) return 0
    const bytes = body.joined()
    const at = bytes.indexOf(promptKey)
    if (at === -1) return 0
    const start = at + promptKey.length
    const known = prompts.find(bytes, start)
    return known ? known.end - start : 0
  }

  learn(session: string, text: Uint8Array, ids: Int32Array<ArrayBuffer>): void {
    this.#using(session, (prompts) => prompts.add(text, ids))
  }

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

/** The factor by which the memory for the text grows, so that the text is copied a few times in all, not every turn. */
const growth = 2

/**
 * A prompt that a server wrote out: its ids as text, and as numbers. The next turn's prompt begins with the same text, so
 * only what follows is parsed. Both only grow at their end: arrays that were handed out before stay as they are.
 */
class KnownPrompt {
  #text: Buffer
  #textLength: number
  readonly #ids = growingIds()

  /** `text` is the part between the brackets: digits and commas. */
  constructor(text: Uint8Array, ids: Int32Array<ArrayBuffer>) {
    this.#text = Buffer.from(text)
    this.#textLength = text.length
    this.#ids.append(ids)
  }

  get bytes(): number {
    return this.#text.length + this.#ids.byteLength
  }

  get textLength(): number {
    return this.#textLength
  }

  /** Where this prompt's text ends in `bytes`, if it begins at `at` and no further digit follows. Otherwise -1. */
  endIn(bytes: Uint8Array, at: number): number {
    const end = at + this.#textLength
    // A digit at the end would change the last number. No ids are left if their memory was transferred to another thread.
    if (end >= bytes.length || isDigit(bytes[end]) || this.#ids.byteLength === 0) return -1
    return this.#text.compare(bytes, at, end, 0, this.#textLength) === 0 ? end : -1
  }

  begins(text: Uint8Array): boolean {
    const end = this.#textLength
    if (end > text.length || isDigit(text[end])) return false
    return this.#text.compare(text, 0, end, 0, end) === 0
  }

  /** Extends the prompt by the ids `more`, whose text begins with a comma, and returns all ids. */
  extend(text: Uint8Array, more: Int32Array<ArrayBuffer>): Int32Array<ArrayBuffer> {
    const textLength = this.#textLength + text.length
    if (textLength > this.#text.length) this.#text = grown(this.#text, textLength)
    this.#text.set(text, this.#textLength)
    this.#textLength = textLength
    this.#ids.append(more)
    return this.#ids.view()
  }
}

function grown(text: Buffer, length: number): Buffer {
  const larger = Buffer.allocUnsafeSlow(length * growth)
  larger.set(text)
  return larger
}
