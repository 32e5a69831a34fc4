import { MessageChannel, type MessagePort } from 'node:worker_threads'
import { MillraceError, type WireError } from '../../errors/index.ts'
import { offAbort, onAbort, Resource, Thread, workerUrl } from '../../kit/index.ts'
import type { Outcome } from '../../schema/index.ts'
import { WriterFigures } from './writer-figures.ts'

/** The last checkpoint of a large run on a slow disk takes seconds; past this the thread is ended, which loses nothing. */
const closeTimeoutMs = 60_000

export class StoreWriter extends Resource {
  readonly figures = new WriterFigures()
  readonly #thread: Thread<WriterCommand>
  readonly #ready = Promise.withResolvers<void>()
  readonly #watches = new Map<string, Set<RecordedListener>>()
  #retried: PromiseWithResolvers<number> | undefined
  #failure: { readonly reason: unknown } | undefined

  private constructor(folder: string) {
    super()
    const options: WriterOptions = { folder, figures: this.figures.memory }
    this.#thread = new Thread(workerUrl(import.meta, './writer-thread'), {
      name: 'millrace-store',
      workerData: options,
    })
    this.#thread.on('message', (notice: WriterNotice) => this.#onNotice(notice))
    void this.#thread.ended.then((why) => {
      const message = `the thread that writes ${folder} ended (${why.message}); run the same again`
      this.#fail(new MillraceError('store_failed', message, { cause: why }))
    })
    this.#ready.promise.catch(() => {})
  }

  /** Resolves once the database is open and in step with `rollouts.jsonl`. */
  static async start(folder: string, signal?: AbortSignal): Promise<StoreWriter> {
    signal?.throwIfAborted()
    const writer = new StoreWriter(folder)
    const listener = {
      handleEvent: () => {
        writer.#fail(signal?.reason)
        // Rebuilding a large file may take long; it starts again next time, so there is no need to wait for it.
        void writer.#thread.terminate()
      },
    }
    if (signal) onAbort(signal, listener)
    try {
      await writer.#ready.promise
      return writer
    } catch (error) {
      await writer.close()
      throw error
    } finally {
      if (signal) offAbort(signal, listener)
    }
  }

  /** A port for one `JournalClient`, on this thread or, transferred, on another. */
  connect(): MessagePort {
    this.throwIfClosed()
    const { port1, port2 } = new MessageChannel()
    this.#thread.postMessage({ kind: 'connect', port: port2 }, [port2])
    return port1
  }

  /** Must be called with nothing under way: results that arrive meanwhile would be in neither set. */
  async retryFailed(failed: RetryFailed): Promise<number> {
    while (this.#retried) await this.#retried.promise
    this.throwIfClosed()
    if (this.#failure) throw this.#failure.reason
    this.#retried = Promise.withResolvers()
    this.#thread.postMessage({ kind: 'retry-failed', ...failed })
    return this.#retried.promise
  }

  /** Calls `listener` with the attempt whenever messages of this rollout have become durable, until it is disposed of. */
  watch(rollout: string, listener: RecordedListener): Disposable {
    this.throwIfClosed()
    const listeners = this.#watches.get(rollout) ?? new Set()
    if (listeners.size === 0) {
      this.#watches.set(rollout, listeners)
      this.#thread.postMessage({ kind: 'watch', rollout })
    }
    listeners.add(listener)
    return { [Symbol.dispose]: () => this.#unwatch(rollout, listener) }
  }

  #unwatch(rollout: string, listener: RecordedListener): void {
    const listeners = this.#watches.get(rollout)
    if (!listeners?.delete(listener) || listeners.size > 0) return
    this.#watches.delete(rollout)
    if (!this.isClosed) this.#thread.postMessage({ kind: 'unwatch', rollout })
  }

  protected onClose(): Promise<void> {
    return this.#thread.end({ kind: 'close' }, closeTimeoutMs)
  }

  #onNotice(notice: WriterNotice): void {
    switch (notice.kind) {
      case 'ready':
        this.#ready.resolve()
        return
      case 'retried':
        this.#retried?.resolve(notice.count)
        this.#retried = undefined
        return
      case 'recorded':
        for (const [rollout, attempt] of notice.attempts) {
          for (const listener of this.#watches.get(rollout) ?? []) listener(attempt)
        }
        return
      case 'failed':
        this.#fail(MillraceError.fromWire(notice.error))
        return
    }
  }

  #fail(reason: unknown): void {
    this.#failure ??= { reason }
    this.#ready.reject(this.#failure.reason)
    this.#retried?.reject(this.#failure.reason)
    this.#retried = undefined
  }
}

/** Hears of an attempt that has new messages in the store. Must not throw. */
export type RecordedListener = (attempt: number) => void

export interface WriterOptions {
  readonly folder: string
  readonly figures: SharedArrayBuffer
}

export interface RetryFailed {
  readonly outcomes: readonly Outcome[]
  /** The outcomes among `outcomes` whose attempt is still good: it goes on from its journal instead of starting over. */
  readonly reopened: readonly Outcome[]
  /** Rollouts of one task are scored together, so the results of a rollout's siblings are taken back with its own. */
  readonly wholeGroups: boolean
}

/** Messages to the writer thread from the thread that started it. Batches travel on ports of their own. */
export type WriterCommand =
  | { readonly kind: 'connect'; readonly port: MessagePort }
  | ({ readonly kind: 'retry-failed' } & RetryFailed)
  /** From now on, or no longer: says of each commit whether it has messages of this rollout. */
  | { readonly kind: 'watch' | 'unwatch'; readonly rollout: string }
  | { readonly kind: 'close' }

/** Messages from the writer thread. `failed` may come at any time, and is the last that matters. */
export type WriterNotice =
  | { readonly kind: 'ready' }
  | { readonly kind: 'failed'; readonly error: WireError }
  | { readonly kind: 'retried'; readonly count: number }
  /** Watched rollouts of which messages were committed, each with the attempt. */
  | { readonly kind: 'recorded'; readonly attempts: readonly (readonly [rollout: string, attempt: number])[] }
