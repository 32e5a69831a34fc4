import { write } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import { promisify } from 'node:util'
import { Resource, within } from '../kit/index.ts'

const writeTo = promisify(write)

/** How many characters may wait for a slow reader. Beyond this lines are dropped, and the next one that fits says how many. */
const maxWaiting = 4 * 1024 * 1024
/** How long closing waits for a reader that has stopped reading. */
const closeGraceMs = 2000
const retryAfterMs = 20
/** Lines that come within this time leave together: each write is a hop to another thread and back. */
const gatherMs = 20

/**
 * Writes lines to a descriptor, in order and off the loop. Node's own `process.stderr` blocks the loop as long as a pipe is full;
 * a run must never wait for the reader of its log.
 */
export class LineSink extends Resource {
  readonly #fd: number
  #waiting: string[] = []
  #chars = 0
  #dropped = 0
  #isBroken = false
  #writing: Promise<void> | undefined

  constructor(fd: number) {
    super()
    this.#fd = fd
  }

  write(line: string): void {
    if (this.isClosed || this.#isBroken) return
    if (this.#chars + line.length > maxWaiting) {
      this.#dropped += 1
      return
    }
    if (this.#dropped > 0) {
      this.#waiting.push(`{"level":"warn","msg":"${this.#dropped} lines were dropped: nobody read them in time"}\n`)
      this.#dropped = 0
    }
    this.#waiting.push(line)
    this.#chars += line.length
    this.#writing ??= this.#writeWaiting()
  }

  protected async onClose(): Promise<void> {
    if (!this.#writing) return
    await within(this.#writing, closeGraceMs)
    this.#isBroken = true
  }

  async #writeWaiting(): Promise<void> {
    while (this.#waiting.length > 0 && !this.#isBroken) {
      if (!this.isClosed) await pause(gatherMs)
      const bytes = Buffer.from(this.#waiting.join(''))
      this.#waiting = []
      this.#chars = 0
      await this.#writeAll(bytes)
    }
    this.#writing = undefined
  }

  async #writeAll(bytes: Buffer): Promise<void> {
    for (let from = 0; from < bytes.length && !this.#isBroken;) {
      try {
        const { bytesWritten } = await writeTo(this.#fd, bytes, from)
        from += bytesWritten
      } catch (error) {
        // A full non-blocking pipe says EAGAIN. After any other error there is nobody left to read.
        if (error instanceof Error && 'code' in error && error.code === 'EAGAIN') await pause(retryAfterMs)
        else this.#isBroken = true
      }
    }
  }
}
