import { MillraceError } from '../../errors/index.ts'
import { Resource, ThreadPool, workerUrl } from '../../kit/index.ts'
import type { Tokenizer } from '../../tokenizer/index.ts'

type Ids = Int32Array<ArrayBuffer>

/** Encoding takes about a millisecond for 2,000 characters, and the loop would stand still for as long. */
const offLoopCharacters = 16 * 1024
const maxQueued = 10_000

interface PromptEncoderOptions {
  readonly folder: string
  readonly tokenizer: Tokenizer
}

/**
 * Encodes texts of prompts. Long parts, such as files that a tool returned, are encoded on a thread, and so is all of a long
 * conversation but its beginning. The thread is started for the first of them: a tokenizer can take hundreds of megabytes of memory.
 */
export class PromptEncoder extends Resource {
  readonly #options: PromptEncoderOptions
  /** Parts that are being encoded there: rollouts that start together often have the same system prompt. */
  readonly #pending = new Map<string, Promise<Ids>>()
  #threads: ThreadPool<string, Ids> | undefined

  constructor(options: PromptEncoderOptions) {
    super()
    this.#options = options
  }

  /** The ids of a text, in parts. */
  async encode(text: string): Promise<readonly Ids[]> {
    const { tokenizer } = this.#options
    let room = offLoopCharacters
    const parts = tokenizer.partsOf(text).map(async (part) => {
      const known = tokenizer.known(part) ?? this.#pending.get(part)
      if (known) return await known
      room -= part.length
      return room > 0 ? tokenizer.encodePart(part) : await this.#long(part)
    })
    return await Promise.all(parts)
  }

  #long(part: string): Promise<Ids> {
    const encoding = this.#encodeAside(part).finally(() => this.#pending.delete(part))
    this.#pending.set(part, encoding)
    return encoding
  }

  async #encodeAside(part: string): Promise<Ids> {
    const { tokenizer } = this.#options
    try {
      const ids = await this.#opened().run(part)
      tokenizer.keep(part, ids)
      return ids
    } catch {
      // A machine that gives no thread still gets its prompt, and so does a request that outlives a change of backends.
      return tokenizer.encodePart(part)
    }
  }

  #opened(): ThreadPool<string, Ids> {
    this.throwIfClosed()
    this.#threads ??= new ThreadPool({
      entry: workerUrl(import.meta, './encode-thread'),
      name: 'millrace-encode',
      workerData: this.#options.folder,
      maxThreads: () => 1,
      jobsPerThread: 1,
      crowdedJobs: 1,
      maxQueued,
      whenFull: 'lower --concurrency (concurrency)',
      onAbort: 'cancel',
      died: (why) => new MillraceError('internal', `the thread that encodes prompts has ended: ${why.message}`),
    })
    return this.#threads
  }

  protected override async onClose(): Promise<void> {
    await this.#threads?.close()
  }
}
