import type { ServerResponse } from 'node:http'
import { MillraceError } from '../errors/index.ts'

/** A client that takes nothing for so long is given up: it holds a place among the replies that are being made. */
const maxStallMs = 60_000

/** A reply in the making: writes as fast as its client reads, and knows when the client has gone. */
export class ReplyStream implements Disposable {
  readonly #response: ServerResponse
  readonly #onGone: () => void
  #isGone = false
  #endWait: (() => void) | undefined

  /** `onGone` is called at most once, possibly at once. */
  constructor(response: ServerResponse, onGone: () => void = () => {}) {
    this.#response = response
    this.#onGone = onGone
    // It may have gone while its request was being accepted.
    if (response.destroyed) this.#onClose()
    else response.on('close', this.#onClose)
  }

  get isGone(): boolean {
    return this.#isGone
  }

  begin(headers: Readonly<Record<string, string>>): void {
    this.#response.writeHead(200, headers)
    this.#response.flushHeaders()
  }

  /** A promise if the client has no room for more just now. Rejects, or throws, when it has gone. */
  write(chunk: string | Uint8Array): Promise<void> | undefined {
    if (this.#isGone) throw clientGone()
    return this.#response.write(chunk) ? undefined : this.#drained()
  }

  end(): void {
    this[Symbol.dispose]()
    this.#response.end()
  }

  /** For a reply that cannot be completed once it has begun: nobody must take it for complete. */
  breakOff(): void {
    this.#response.destroy()
  }

  /** It is somebody else's reply from here on. */
  [Symbol.dispose](): void {
    this.#response.off('close', this.#onClose)
  }

  readonly #onClose = (): void => {
    this.#isGone = true
    this.#endWait?.()
    this.#onGone()
  }

  #drained(): Promise<void> {
    const response = this.#response
    return new Promise((resolve, reject) => {
      const stalled = setTimeout(() => this.breakOff(), maxStallMs)
      const endWait = (): void => {
        clearTimeout(stalled)
        this.#endWait = undefined
        if (this.#isGone) reject(clientGone())
        else resolve()
      }
      // A client on this machine empties the socket as fast as it is filled, and a reply of 60 MB would go out in a few long
      // turns of the loop; so the next piece waits for the next turn.
      response.once('drain', () => setImmediate(endWait))
      this.#endWait = endWait
    })
  }
}

function clientGone(): MillraceError {
  return new MillraceError('closed', 'the client has gone')
}
