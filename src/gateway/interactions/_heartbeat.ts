import { timerMs } from '../../kit/index.ts'
import { sendBeat } from './_send-reply.ts'
import type { ClientReply } from './client-reply.ts'

/** Of server-sent events: a comment, which clients skip. */
const beat = ': on its way\n\n'

export interface HeartbeatOptions {
  readonly everyMs: number
  /** Whether the reply may still be refused with a status. */
  readonly isUndecided: () => boolean
}

/**
 * Says every so often that a reply is on its way, to a client that wants a stream and sees nothing of it until its end. Without
 * a byte for long many give up, and so a policy would never get to learn from its long replies: Node's fetch does after five
 * minutes, most proxies after one.
 */
export class Heartbeat {
  readonly #timer: NodeJS.Timeout
  /** The client has been told that a stream is on its way: what goes wrong from now on cannot be a status any more. */
  isPromised = false

  constructor(client: ClientReply, { everyMs, isUndecided }: HeartbeatOptions) {
    this.#timer = setInterval(() => {
      if (client.isGone || (!this.isPromised && isUndecided())) return
      this.isPromised = true
      sendBeat(client, beat)
    }, timerMs(everyMs))
  }

  stop(): void {
    clearInterval(this.#timer)
  }
}
