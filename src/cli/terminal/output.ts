import type { Writable } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { MillraceError } from '../../errors/index.ts'
import type { Variables } from '../../kit/index.ts'
import { formatCount } from './format.ts'
import { createStyle, type Style, wantsColor } from './text.ts'

export type OutputStream = Writable & {
  readonly isTTY?: boolean | undefined
  readonly columns?: number | undefined
  readonly rows?: number | undefined
}

/**
 * A stream that commands write to. A reader that went away (`| head`) is no error: `readerGone` aborts, and further writes do
 * nothing. A closed terminal does not stop the work: if the work is to end, a signal comes with it.
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

  /** The width of a table: without a terminal nothing is cut off. */
  get tableWidth(): number {
    return this.isTTY ? this.columns : Number.POSITIVE_INFINITY
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

  async lines(lines: Iterable<string>): Promise<void> {
    for (const text of lines) {
      if (this.readerGone.aborted) return
      await this.line(text)
    }
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
    return { [Symbol.dispose]: () => void (stream.write = write) }
  }

  [Symbol.dispose](): void {
    this.#stream.off('error', this.#onError)
  }

  #drained(): Promise<void> {
    this.#draining ??= new Promise((resolve) => {
      const ends = ['drain', 'error', 'close']
      const settle = (): void => {
        this.#draining = undefined
        for (const end of ends) this.#stream.off(end, settle)
        resolve()
      }
      for (const end of ends) this.#stream.on(end, settle)
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
  const [code, message] =
    error.code === 'ENOSPC'
      ? (['disk_full', 'the disk of the output is full; free some space, then run the command again'] as const)
      : (['folder_unwritable', `cannot write the output: ${error.message}; check its destination`] as const)
  return new MillraceError(code, message, { cause: error })
}

const maxLineLength = 64 * 1024

/** Takes the lines of other code: a `console.log` must neither tear a live view nor mix its text with JSON. */
export class UserCodeOutput implements Disposable {
  readonly #onLine: (line: string) => void
  readonly #diverted: readonly Disposable[]
  #rest = ''

  constructor(outputs: readonly Output[], onLine: (line: string) => void) {
    this.#onLine = onLine
    this.#diverted = outputs.map((output) => output.divert(this.#onText))
  }

  [Symbol.dispose](): void {
    for (const diverted of this.#diverted) diverted[Symbol.dispose]()
    if (this.#rest !== '') this.#onLine(this.#rest)
    this.#rest = ''
  }

  readonly #onText = (text: string): void => {
    const lines = `${this.#rest}${text}`.split('\n')
    this.#rest = lines.pop() ?? ''
    for (const line of lines) this.#onLine(line)
    if (this.#rest.length < maxLineLength) return
    this.#onLine(this.#rest)
    this.#rest = ''
  }
}

const quietMs = 2000
const intervalMs = 250
/** The clock is read once per this many items. */
const stride = 256
const clearLine = '\r\u001b[K'

/** Shows a count on a terminal once work takes longer than two seconds, and removes it at the end. */
export class DelayedProgress implements Disposable {
  readonly #output: Output
  readonly #what: string
  #nextAt = performance.now() + quietMs
  count = 0
  #isShown = false

  constructor(output: Output, what: string) {
    this.#output = output
    this.#what = what
  }

  add(): void {
    this.count += 1
    if (this.count % stride !== 0 || !this.#output.isTTY) return
    const now = performance.now()
    if (now < this.#nextAt) return
    this.#nextAt = now + intervalMs
    this.#isShown = true
    void this.#output.write(`${clearLine}${this.#output.style.dim(`${this.#what}: ${formatCount(this.count)}…`)}`)
  }

  [Symbol.dispose](): void {
    if (this.#isShown) void this.#output.write(clearLine)
    this.#isShown = false
  }
}
