import type { ClientRequest, IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'

/**
 * Counts everything on the network that has to do with a port: what is accepted there, from whichever thread or process it comes, and
 * what this thread sends there. Requests of this thread to other addresses are counted beside that.
 */
export class PortWatch implements Disposable {
  /** Connections and requests that the port's server got. */
  connections = 0
  requests = 0
  /** Requests of this thread, to the port and to anywhere else. */
  sentHere = 0
  sentElsewhere = 0
  /** Ports on which this thread began to listen. */
  listening = 0
  readonly #port: number
  readonly #listeners: Readonly<Record<string, (message: unknown) => void>>

  constructor(url: string) {
    this.#port = Number(new URL(url).port)
    this.#listeners = {
      'net.server.socket': (message) => {
        const { socket } = message as { readonly socket: Socket }
        if (socket.localPort === this.#port) this.connections += 1
      },
      'http.server.request.start': (message) => {
        const { socket } = (message as { readonly request: IncomingMessage }).request
        if (socket.localPort === this.#port) this.requests += 1
      },
      'undici:request:create': (message) => {
        const { origin } = (message as { readonly request: { readonly origin: string | URL } }).request
        this.#onSent(new URL(origin).port)
      },
      'http.client.request.start': (message) => {
        const host = (message as { readonly request: ClientRequest }).request.getHeader('host')
        this.#onSent(new URL(`http://${String(host)}`).port)
      },
      'tracing:net.server.listen:asyncStart': () => {
        this.listening += 1
      },
    }
    for (const [channel, listener] of Object.entries(this.#listeners)) subscribe(channel, listener)
  }

  #onSent(port: string): void {
    if (Number(port) === this.#port) this.sentHere += 1
    else this.sentElsewhere += 1
  }

  [Symbol.dispose](): void {
    for (const [channel, listener] of Object.entries(this.#listeners)) unsubscribe(channel, listener)
  }
}
