import { causesOf } from '../link/call-failure.ts'
import { secretsOf } from './config-secrets.ts'
import type { ServerConfig } from './server-config.ts'

/** Shorter values are words like `true`; replacing them would make holes in every message. */
const minSecretLength = 6

/**
 * Keeps a server's secrets out of errors and events: values that came from variables, wherever they were put; all headers and
 * variables of the server, whatever their names; and credentials and parameters in its URL.
 */
export class Redaction {
  readonly #secrets: readonly string[]

  constructor(config: ServerConfig) {
    const given =
      'url' in config
        ? [...Object.values(config.headers ?? {}).flatMap(withoutScheme), ...secretsInUrl(config.url)]
        : Object.values(config.env ?? {})
    const secrets = new Set([...secretsOf(config), ...given].flatMap(asWritten))
    // The longest first, so that no rest of a secret is left where a shorter one is part of it.
    this.#secrets = [...secrets].filter(({ length }) => length >= minSecretLength).sort((a, b) => b.length - a.length)
  }

  text(text: string): string {
    return this.#secrets.reduce((left, secret) => left.replaceAll(secret, '[redacted]'), text)
  }

  /** The error itself if nothing in it is secret; else a new one with its message redacted. */
  error(error: Error): Error {
    const told = [...causesOf(error)].map((cause) => `${cause.stack} ${JSON.stringify(cause)}`).join('\n')
    if (this.text(told) === told) return error
    return new Error(this.text(error.message))
  }
}

/** A header's value, and its token without the scheme: `Bearer abc` is a secret, and so is `abc`. */
function withoutScheme(value: string): string[] {
  const [, bare] = /^\w+ +(\S+)$/.exec(value) ?? []
  return bare === undefined ? [value] : [value, bare]
}

function secretsInUrl(url: string): string[] {
  const { username, password, searchParams } = new URL(url)
  return [username, password, ...searchParams.values()]
}

/** A value as it may stand in messages: plain, URL-encoded, or as in JSON. */
function asWritten(value: string): string[] {
  return [value, encodeURIComponent(value.toWellFormed()), JSON.stringify(value).slice(1, -1)]
}
