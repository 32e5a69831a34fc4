import type { IncomingHttpHeaders } from 'node:http'

/** The names by which programs of this machine call it. No web page can have one of them as its own. */
const ownNames = ['localhost', '127.0.0.1', '[::1]']
const maxQuotedChars = 100

/**
 * Finds requests that a web page may have sent to a server without a key. With DNS rebinding the page's name is in `Host`;
 * otherwise its origin is in `Origin`. So `Host` must be a name of this server, with any port (a tunnel's, say), and
 * `Origin`, which programs do not send, the origin that `Host` names.
 */
export class HostCheck {
  readonly #names: ReadonlySet<string>

  constructor(host: string) {
    this.#names = new Set([...ownNames, host.includes(':') ? `[${host}]` : host.toLowerCase()])
  }

  /** Why the request is refused; undefined if it is not. */
  refusal({ host = '', origin }: IncomingHttpHeaders): string | undefined {
    if (!this.#names.has(host.toLowerCase().replace(/:\d{1,5}$/, ''))) {
      const names = [...this.#names].join(', ')
      return `this server has no key, so it answers only requests whose Host is ${names}, not ${quoted(host)}; use one of these, or give the server a key`
    }
    if (origin === undefined || origin.toLowerCase() === `http://${host.toLowerCase()}`) return undefined
    return `this server has no key, so it rejects requests from web pages, such as ${quoted(origin)}; leave out Origin, or give the server a key`
  }
}

/** Whether only programs on this machine reach a server that listens on this host. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || host.startsWith('127.')
}

function quoted(value: string): string {
  return JSON.stringify(value.slice(0, maxQuotedChars))
}
