import { createHmac, randomBytes, randomUUID, timingSafeEqual } from 'node:crypto'

/** Two weeks, as NeMo Gym says. A client that keeps a cookie longer begins a new session. */
const maxAgeSeconds = 14 * 24 * 60 * 60
const keyBytes = 32
const maxCookieChars = 4_096

/** A session that a client names with its cookie, or a new one. */
export interface CookieSession {
  readonly id: string
  /** Whether the client sent no valid cookie, so that nobody knows the session yet. */
  readonly isNew: boolean
}

/**
 * The session cookies of one server in NeMo Gym's protocol. A value is opaque to clients: the id, the time and a signature. Only
 * who has seen a cookie can use its session.
 */
export class SessionCookies {
  readonly name: string
  readonly #key: Buffer
  readonly #pattern: RegExp

  /** `server` and `instance` make the name of the cookie. Without a `key`, cookies of an earlier process are not valid. */
  constructor(server: string, instance: string, key = randomBytes(keyBytes)) {
    this.name = `${token(server)}___${token(instance)}`
    this.#key = key
    this.#pattern = new RegExp(`(?:^|;)\\s*${RegExp.escape(this.name)}="?([^;"]+)`)
  }

  /** The session of a request with this `cookie` header. */
  session(header: string | undefined): CookieSession {
    const [, value = ''] =
      header === undefined || header.length > maxCookieChars ? [] : (this.#pattern.exec(header) ?? [])
    const id = this.#read(value)
    return id === undefined ? { id: randomUUID(), isNew: true } : { id, isNew: false }
  }

  /** The headers of every reply to a request of this session, whatever its status. */
  headers({ id }: CookieSession): Readonly<Record<'set-cookie' | 'vary', string>> {
    const content = `${Buffer.from(id).toString('base64url')}.${nowSeconds().toString(36)}`
    const value = `${content}.${this.#sign(content)}`
    return {
      'set-cookie': `${this.name}=${value}; path=/; Max-Age=${maxAgeSeconds}; httponly; samesite=lax`,
      vary: 'Cookie',
    }
  }

  #read(value: string): string | undefined {
    const [id = '', time = '', signature = ''] = value.split('.')
    const expected = Buffer.from(this.#sign(`${id}.${time}`))
    const given = Buffer.from(signature)
    if (given.length !== expected.length || !timingSafeEqual(given, expected)) return undefined
    if (nowSeconds() - Number.parseInt(time, 36) > maxAgeSeconds) return undefined
    return Buffer.from(id, 'base64url').toString()
  }

  #sign(content: string): string {
    return createHmac('sha256', this.#key).update(content).digest('base64url')
  }
}

function nowSeconds(): number {
  return Math.floor(Date.now() / 1000)
}

/** What may stand in the name of a cookie. */
function token(name: string): string {
  return name.replaceAll(/[^\w.-]+/g, '-')
}
