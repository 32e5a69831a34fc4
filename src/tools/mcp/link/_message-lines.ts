import { LineSplitter } from '../../../kit/index.ts'

export interface MessageLinesOptions {
  readonly maxBytes: number
  readonly onLine: (line: string) => void
  readonly tooLong: () => Error
}

/** Reads messages of a line each. As soon as a line is longer than `maxBytes`, `push` throws the error of `tooLong`. */
export class MessageLines {
  readonly #options: MessageLinesOptions
  readonly #splitter: LineSplitter

  constructor(options: MessageLinesOptions) {
    this.#options = options
    this.#splitter = new LineSplitter(options.maxBytes)
  }

  push(chunk: Buffer): void {
    const { onLine, tooLong } = this.#options
    for (const line of this.#splitter.push(chunk)) {
      if (line === undefined) throw tooLong()
      onLine(line)
    }
    if (this.#splitter.isSkipping) throw tooLong()
  }
}
