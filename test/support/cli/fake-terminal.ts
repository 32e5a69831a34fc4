import { EventEmitter } from 'node:events'
import { Writable } from 'node:stream'
import { stripVTControlCharacters } from 'node:util'
import type { OutputStream } from '../../../src/cli/terminal/output.ts'

/** A stream that keeps what is written to it, as a terminal or as a pipe. */
export class FakeStream extends Writable {
  readonly isTTY: boolean
  columns: number | undefined
  readonly rows = 40
  #text = ''

  constructor(options: { readonly columns?: number } = {}) {
    super({ decodeStrings: false })
    this.isTTY = options.columns !== undefined
    this.columns = options.columns
  }

  /** Everything written, escapes included. */
  get text(): string {
    return this.#text
  }

  /** The text without colours and cursor movements. */
  get plain(): string {
    return stripVTControlCharacters(this.#text)
  }

  get lines(): readonly string[] {
    return this.plain.split('\n').slice(0, -1)
  }

  override _write(chunk: string, _encoding: string, done: () => void): void {
    this.#text += chunk
    done()
  }
}

/** The parts of a process that `main` needs, all in memory. */
export function fakeProcess(options: { readonly columns?: number; readonly env?: Record<string, string> } = {}): {
  stdout: FakeStream & OutputStream
  stderr: FakeStream & OutputStream
  env: Record<string, string | undefined>
  events: EventEmitter
} {
  return {
    stdout: new FakeStream(options),
    stderr: new FakeStream(),
    env: { ...options.env },
    events: new EventEmitter(),
  }
}
