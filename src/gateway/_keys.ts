import { hash, randomBytes } from 'node:crypto'
import { MillraceError } from '../errors/index.ts'
import { Secret } from '../kit/index.ts'
import type { Caller } from './caller.ts'

export interface AdminKey {
  readonly tenant: string
  readonly key: string
}

const sessionPrefix = 'mrs-'
/** No key of ours is longer than this; a longer one is refused without a digest. */
const maxKeyChars = 4096

export function newSessionKey(): string {
  return sessionPrefix + randomBytes(32).toString('base64url')
}

/** The form in which a key is stored. The digest of 32 random bytes needs no salt: nobody has a table of them. */
export function keyDigest(key: string): string {
  return hash('sha256', key, 'base64url')
}

/** Refuses a key of two tenants. One tenant may name a key twice, in the configuration file and in the environment, say. */
export function refuseSharedKeys(admins: readonly AdminKey[]): void {
  const owners = new Map<string, string>()
  for (const { tenant, key } of admins) {
    const owner = owners.get(key) ?? tenant
    if (owner !== tenant) {
      const message = `tenants ${owner} and ${tenant} have the same admin key; give each a key of its own`
      throw new MillraceError('config_invalid', message)
    }
    owners.set(key, tenant)
  }
}

/**
 * Finds the caller that a key belongs to. It is compared with each admin's key in constant time, which says nothing about
 * how much of it was right. A session's key is looked up by its digest: the time of that lookup says nothing that helps to
 * guess the key.
 */
export class KeyRing {
  readonly #admins: readonly { readonly secret: Secret; readonly caller: Caller }[]
  readonly #sessionCaller: (digest: string) => Caller | undefined
  /** The tenants that have an admin key. Session keys of other tenants are refused: nobody could look at those sessions. */
  readonly #tenants: ReadonlySet<string>
  /** Whether an admin has chosen a key that looks like a session's. */
  readonly #hasLookalike: boolean

  constructor(admins: readonly AdminKey[], sessionCaller: (digest: string) => Caller | undefined) {
    if (admins.length === 0) throw new MillraceError('config_invalid', 'a gateway needs at least one admin key')
    refuseSharedKeys(admins)
    this.#admins = admins.map(({ tenant, key }) => ({ secret: new Secret(key), caller: { kind: 'admin', tenant } }))
    this.#sessionCaller = sessionCaller
    this.#tenants = new Set(admins.map(({ tenant }) => tenant))
    this.#hasLookalike = admins.some(({ key }) => key.startsWith(sessionPrefix))
  }

  callerFor(token: string | undefined): Caller | undefined {
    if (token === undefined || token === '' || token.length > maxKeyChars) return undefined
    const isSession = token.startsWith(sessionPrefix)
    const admin = isSession && !this.#hasLookalike ? undefined : this.#admin(token)
    return admin ?? (isSession ? this.#session(token) : undefined)
  }

  #session(token: string): Caller | undefined {
    const caller = this.#sessionCaller(keyDigest(token))
    return caller && this.#tenants.has(caller.tenant) ? caller : undefined
  }

  #admin(token: string): Caller | undefined {
    const sent = new Secret(token)
    let caller: Caller | undefined
    for (const admin of this.#admins) if (admin.secret.equals(sent)) caller = admin.caller
    return caller
  }
}
