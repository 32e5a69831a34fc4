import type { Writable } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { MillraceError } from '../../errors/index.ts'
import { createStyle, wantsColor, type Style } from '../format/style.ts'
import type { Variables } from '../../kit/index.ts'

export type OutputStream = Writable & {
  readonly isTTY?: boolean | undefined
  readonly columns?: number | undefined
  readonly rows?: number | undefined
}

/**
 * A stream of the process that commands write to. A reader that went away (`| head`) is no error: `readerGone` aborts, and
 * further writes do nothing. A closed terminal is no error either, and does not stop the work: if the work is to end, a
 * signal comes with it.
 */
export class Output implements Disposable {
  readonly style: Style
  readonly #stream: OutputStream
  /** Writes to the stream itself, even while the output of other code is diverted. */
  readonly #write: (chunk: string | Uint8Array) => boolean
  readonly #gone = new AbortController()
  #error: MillraceError | undefined
  #isTerminalGone = false
  #draining: Promise<void> | undefined

  constructor(stream: OutputStream, env: Variables) {
    this.#stream = stream
    this.#write = stream.write.bind(stream)
    this.style = createStyle(wantsColor(stream.isTTY === true, env))
    stream.on('error', this.#onError)
  }

  get isTTY(): boolean {
    return this.#stream.isTTY === true
  }

  get columns(): number {
    // A terminal that does not know its size reports 0.
    return this.#stream.columns || 80
  }

  get rows(): number {
    return this.#stream.rows || 24
  }

  get readerGone(): AbortSignal {
    return this.#gone.signal
  }

  line(text = ''): Promise<void> | undefined {
    return this.write(`${text}\n`)
  }

  /** The promise is back-pressure: await it before writing much more. */
  write(chunk: string | Uint8Array): Promise<void> | undefined {
    if (this.#error) throw this.#error
    if (this.#gone.signal.aborted || this.#isTerminalGone || this.#write(chunk)) return undefined
    return this.#drained()
  }

  /** Throws if a write has failed: the failure of the last ones has not been reported yet. */
  async flush(): Promise<void> {
    await this.#draining
    await nextTurn()
    if (this.#error) throw this.#error
  }

  /** Sends what other code writes to the stream to `onText` instead, until disposed of. */
  divert(onText: (text: string) => void): Disposable {
    const stream = this.#stream
    const write = stream.write.bind(stream)
    stream.write = (chunk: string | Uint8Array, ...rest: readonly unknown[]): boolean => {
      onText(typeof chunk === 'string' ? chunk : Buffer.from(chunk).toString())
      const done = rest.at(-1)
      if (typeof done === 'function') process.nextTick(done)
      return true
    }
    return {
      [Symbol.dispose]() {
        stream.write = write
      },
    }
  }

  [Symbol.dispose](): void {
    this.#stream.off('error', this.#onError)
  }

  /** A promise for the next drain, shared by all who wait. */
  #drained(): Promise<void> {
    this.#draining ??= new Promise((resolve) => {
      const settle = (): void => {
        this.#draining = undefined
        this.#stream.off('drain', settle)
        this.#stream.off('error', settle)
        this.#stream.off('close', settle)
        resolve()
      }
      this.#stream.on('drain', settle)
      this.#stream.on('error', settle)
      this.#stream.on('close', settle)
    })
    return this.#draining
  }

  readonly #onError = (error: NodeJS.ErrnoException): void => {
    if (error.code === 'EPIPE' || error.code === 'ERR_STREAM_DESTROYED') this.#gone.abort()
    else if (error.code === 'EIO' && this.isTTY) this.#isTerminalGone = true
    else this.#error = writeFailed(error)
  }
}

function writeFailed(error: NodeJS.ErrnoException): MillraceError {
  return error.code === 'ENOSPC'
    ? new MillraceError('disk_full', 'the disk that the output goes to is full; free some room and run it again', {
        cause: error,
      })
    : new MillraceError('folder_unwritable', `cannot write the output: ${error.message}; check where it goes`, {
        cause: error,
      })
}
