import { MessageChannel, type MessagePort } from 'node:worker_threads'
import { MillraceError } from '../errors/index.ts'
import { Resource, Thread, workerUrl, type LoopLagWindow } from '../kit/index.ts'
import type { StoreStatus } from './store-status.ts'
import { WriterFigures } from './_writer-figures.ts'
import type { RetryFailed, WriterCommand, WriterNotice, WriterOptions } from './_writer-protocol.ts'

/** The last checkpoint of a large run on a slow disk takes seconds; past this the thread is ended, which loses nothing. */
const closeTimeoutMs = 60_000

/** The writer thread, as the thread that started it sees it. */
export class StoreWriter extends Resource {
  readonly #figures = new WriterFigures()
  readonly #thread: Thread<WriterCommand>
  readonly #ready = Promise.withResolvers<void>()
  #lastFrame = 0
  #retried: PromiseWithResolvers<number> | undefined
  #failure: { readonly reason: unknown } | undefined

  private constructor(folder: string) {
    super()
    const options: WriterOptions = { folder, figures: this.#figures.memory }
    this.#thread = new Thread(workerUrl(import.meta, './_writer-thread'), {
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

  /** Resolves once the database is open, migrated and in step with `rollouts.jsonl`. */
  static async start(folder: string, signal?: AbortSignal): Promise<StoreWriter> {
    signal?.throwIfAborted()
    const writer = new StoreWriter(folder)
    const onAbort = (): void => {
      writer.#fail(signal?.reason)
      // Rebuilding a large file may take long; it starts again next time, so there is no need to wait for it.
      void writer.#thread.terminate()
    }
    signal?.addEventListener('abort', onAbort, { once: true })
    try {
      await writer.#ready.promise
      return writer
    } catch (error) {
      await writer.close()
      throw error
    } finally {
      signal?.removeEventListener('abort', onAbort)
    }
  }

  /** The number of the last frame of the spool that was in the database when it was opened. */
  get lastFrame(): number {
    return this.#lastFrame
  }

  /** How late the thread's event loop runs. Each commit blocks that loop until it is on disk. */
  lag(): LoopLagWindow {
    return this.#figures.lag()
  }

  status(): StoreStatus {
    return this.#figures.status()
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

  /** Commits the entries that wait, checkpoints and ends the thread. */
  protected onClose(): Promise<void> {
    return this.#thread.end({ kind: 'close' }, closeTimeoutMs)
  }

  #onNotice(notice: WriterNotice): void {
    switch (notice.kind) {
      case 'ready':
        this.#lastFrame = notice.lastFrame
        this.#ready.resolve()
        return
      case 'retried':
        this.#retried?.resolve(notice.count)
        this.#retried = undefined
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
