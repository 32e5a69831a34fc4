import { timerMs } from '../../kit/index.ts'
import { sendBeat } from './_send-reply.ts'
import type { ClientReply } from './client-reply.ts'

/** A comment in the syntax of server-sent events, which clients skip. */
const beat = ': on its way\n\n'

export interface HeartbeatOptions {
  readonly everyMs: number
  /** Whether the reply may still be refused with a status. */
  readonly isUndecided: () => boolean
}

/**
 * Sends a comment every so often to a client that asked for a stream whose events come only at the end. Without a byte for
 * long many clients give up, and a policy would never learn from its long replies: Node's fetch gives up after five minutes,
 * most proxies after one.
 */
export class Heartbeat {
  readonly #timer: NodeJS.Timeout
  /** Whether the client has been promised a stream: an error can then no longer be sent as a status. */
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
