import type { Output } from './output.ts'

/** A line without an end is passed on in pieces of this length. */
const maxLineLength = 64 * 1024

/**
 * Takes the lines that other code writes to the process's own streams while a command uses them: an environment that calls
 * `console.log` must neither tear a live view nor mix its text with JSON.
 */
export class ForeignOutput implements Disposable {
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
