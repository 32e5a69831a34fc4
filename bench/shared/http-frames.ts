/** A request or a reply: what stands before the empty line, and the body. */
export interface HttpFrame {
  readonly head: string
  readonly body: string
}

const headEnd = Buffer.from('\r\n\r\n')
const nothing = Buffer.alloc(0)

/**
 * Takes requests or replies apart as they come over one socket. Only for bodies of known length, without anything that a benchmark's
 * own processes do not send: what a full parser costs would be a good part of what is measured.
 */
export class HttpFrames {
  #rest: Buffer = nothing

  push(chunk: Buffer): HttpFrame[] {
    const frames: HttpFrame[] = []
    this.#rest = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk])
    for (;;) {
      const at = this.#rest.indexOf(headEnd)
      if (at === -1) return frames
      const head = this.#rest.toString('latin1', 0, at)
      const start = at + headEnd.length
      const end = start + Number(/^content-length: *(\d+)/im.exec(head)?.[1] ?? 0)
      if (this.#rest.length < end) return frames
      const body = this.#rest.toString('utf8', start, end)
      this.#rest = this.#rest.subarray(end)
      frames.push({ head, body })
    }
  }
}
