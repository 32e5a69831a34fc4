/** Of server-sent events: a comment, which clients skip. */
const beat = ': on its way\n\n'

/**
 * Says every so often that a reply is on its way, to a client whose stream is asked for whole and who sees nothing of it until
 * its end. Without a byte for long many give up, and so a policy would never get to learn from its long replies: Node's fetch
 * does after five minutes, most proxies after one.
 */
export class Heartbeat {
  readonly #timer: NodeJS.Timeout

  constructor(everyMs: number, say: (text: string) => void) {
    this.#timer = setInterval(say, everyMs, beat)
  }

  stop(): void {
    clearInterval(this.#timer)
  }
}
