import { hash, timingSafeEqual } from 'node:crypto'
import { MillraceError } from '../errors/index.ts'

const localHosts: ReadonlySet<string> = new Set(['127.0.0.1', '::1', 'localhost'])

/** Checks a bearer token in a time that says nothing about how much of it was right. */
export class AccessKey {
  readonly #digest: Buffer

  constructor(key: string) {
    this.#digest = digestOf(key)
  }

  allows(authorization: string | undefined): boolean {
    const [, token] = /^Bearer (.+)$/i.exec(authorization ?? '') ?? []
    return token !== undefined && timingSafeEqual(digestOf(token), this.#digest)
  }
}

/** A door to other machines needs a lock. */
export function requireKeyBeyondLoopback(host: string, key: string | undefined): void {
  if (key !== undefined || isLoopback(host)) return
  throw new MillraceError(
    'config_invalid',
    `listening on ${host} lets other machines in, so it needs a key: set MILLRACE_API_KEY, or name another variable with --access-key-env (accessKey), or listen on 127.0.0.1`,
  )
}

/** Whether only this machine can reach it. */
export function isLoopback(host: string): boolean {
  return localHosts.has(host)
}

/** Equal lengths, whatever the key's. */
function digestOf(text: string): Buffer {
  return hash('sha256', text, 'buffer')
}
