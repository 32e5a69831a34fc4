import { Secret } from '../kit/index.ts'
import { bearerToken } from './_bearer-token.ts'
import { requireKeys } from './_require-keys.ts'

/** The one key of a server, which clients send as a bearer token. */
export class AccessKey {
  readonly #secret: Secret

  constructor(key: string) {
    this.#secret = new Secret(key)
  }

  allows(authorization: string | undefined): boolean {
    const sent = bearerToken(authorization)
    return sent !== undefined && this.#secret.equals(new Secret(sent))
  }
}

export function requireAccessKey(host: string, key: string | undefined): void {
  requireKeys(
    host,
    key === undefined ? [] : [{ name: 'the key of this server', key }],
    'a key: set MILLRACE_API_KEY, or name another variable with --access-key-env (accessKey)',
  )
}
