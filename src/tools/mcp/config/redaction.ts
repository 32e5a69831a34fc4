import { causesOf } from '../link/call-failure.ts'
import { secretsOf } from './config-secrets.ts'
import type { ServerConfig } from './server-config.ts'

/** Shorter values are words like `true` that would tear holes into every message. */
const minSecretLength = 6

/**
 * Keeps what a server was told in confidence out of errors and events: what came from variables, whatever it was put into;
 * its headers and its environment, whatever they are called; and what stands in its URL beside the address.
 */
export class Redaction {
  readonly #secrets: readonly string[]

  constructor(config: ServerConfig) {
    const given =
      'url' in config
        ? [...Object.values(config.headers ?? {}).flatMap(withoutScheme), ...secretsInUrl(config.url)]
        : Object.values(config.env ?? {})
    const secrets = new Set([...secretsOf(config), ...given].flatMap(asWritten))
    // The longest first, so that no part of one is left when another is part of it.
    this.#secrets = [...secrets].filter(({ length }) => length >= minSecretLength).sort((a, b) => b.length - a.length)
  }

  text(text: string): string {
    return this.#secrets.reduce((left, secret) => left.replaceAll(secret, '[redacted]'), text)
  }

  /** The error itself if nothing in it is secret, else one with the same words but those. */
  error(error: Error): Error {
    const told = [...causesOf(error)].map((cause) => `${cause.stack} ${JSON.stringify(cause)}`).join('\n')
    if (this.text(told) === told) return error
    return new Error(this.text(error.message))
  }
}

/** `Bearer abc` is a secret, and so is `abc`. */
function withoutScheme(value: string): string[] {
  const [, bare] = /^\w+ +(\S+)$/.exec(value) ?? []
  return bare === undefined ? [value] : [value, bare]
}

function secretsInUrl(url: string): string[] {
  const { username, password, searchParams } = new URL(url)
  return [username, password, ...searchParams.values()]
}

/** Messages hold a value as it is, as a URL has it, or as JSON does. */
function asWritten(value: string): string[] {
  return [value, encodeURIComponent(value.toWellFormed()), JSON.stringify(value).slice(1, -1)]
}
