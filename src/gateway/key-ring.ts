import { randomBytes } from 'node:crypto'
import { z } from 'zod'
import { MillraceError } from '../errors/index.ts'
import { Secret } from '../kit/index.ts'
import { type Caller, keyDigest, sessionPrefix } from './sessions/session-memory.ts'

export interface AdminKey {
  readonly tenant: string
  readonly key: string
}

/** No key of ours is longer than this; a longer one is refused without a digest. */
const maxKeyChars = 4096

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

export const issuedKeySchema = z.object({
  id: z.string(),
  tenant: z.string(),
  createdAt: z.number(),
  digest: z.string(),
})

/** An admin key that was issued while a gateway ran, without the key itself. */
export type IssuedKey = z.output<typeof issuedKeySchema>

const issuedPrefix = 'mrk-'

interface KeyRingOptions {
  /** Whether a session may have a key of any form. Then each unknown key is looked up in the store. */
  readonly takesGivenKeys: boolean
}

/** Finds the caller of a key: admins' keys are compared in constant time, those that were issued here are looked up by digest. */
export class KeyRing {
  readonly #admins: readonly { readonly secret: Secret; readonly caller: Caller }[]
  readonly #sessionCaller: (digest: string) => Caller | undefined
  readonly #takesGivenKeys: boolean
  /** The tenants that have an admin key. Session keys of other tenants are refused: nobody could look at those sessions. */
  #tenants: ReadonlySet<string>
  readonly #issued = new Map<string, { readonly issued: IssuedKey; readonly caller: Caller }>()

  constructor(
    admins: readonly AdminKey[],
    sessionCaller: (digest: string) => Caller | undefined,
    { takesGivenKeys }: KeyRingOptions = { takesGivenKeys: false },
  ) {
    if (admins.length === 0) throw new MillraceError('config_invalid', 'a gateway needs at least one admin key')
    refuseSharedKeys(admins)
    this.#admins = admins.map(({ tenant, key }) => ({ secret: new Secret(key), caller: { kind: 'admin', tenant } }))
    this.#sessionCaller = sessionCaller
    this.#takesGivenKeys = takesGivenKeys
    this.#tenants = this.#tenantsWithKeys()
  }

  get issued(): readonly IssuedKey[] {
    return Array.from(this.#issued.values(), ({ issued }) => issued)
  }

  /** A new admin key, which is shown once. */
  issue(tenant: string): IssuedKey & { readonly key: string } {
    const key = issuedPrefix + randomBytes(32).toString('base64url')
    const id = `key_${randomBytes(9).toString('base64url')}`
    const issued = { id, tenant, createdAt: Date.now(), digest: keyDigest(key) }
    this.restore(issued)
    return { ...issued, key }
  }

  restore(issued: IssuedKey): void {
    this.#issued.set(issued.digest, { issued, caller: { kind: 'admin', tenant: issued.tenant } })
    this.#tenants = this.#tenantsWithKeys()
  }

  revoke(id: string): void {
    const known = this.issued.find((each) => each.id === id)
    if (!known) {
      const message = `no key "${id.slice(0, 64)}" was issued here; GET /v1/keys lists them, and keys of the configuration are not among them`
      throw new MillraceError('usage', message, { data: { status: 404 } })
    }
    this.#issued.delete(known.digest)
    this.#tenants = this.#tenantsWithKeys()
  }

  callerFor(token: string | undefined): Caller | undefined {
    if (token === undefined || token === '' || token.length > maxKeyChars) return undefined
    // An admin may have chosen a key that looks like a session's.
    if (token.startsWith(sessionPrefix)) return this.#session(token) ?? this.#admin(token)
    return this.#issuedCaller(token) ?? this.#admin(token) ?? (this.#takesGivenKeys ? this.#session(token) : undefined)
  }

  #tenantsWithKeys(): ReadonlySet<string> {
    return new Set([...this.#admins.map(({ caller }) => caller.tenant), ...this.issued.map(({ tenant }) => tenant)])
  }

  #issuedCaller(token: string): Caller | undefined {
    return token.startsWith(issuedPrefix) ? this.#issued.get(keyDigest(token))?.caller : undefined
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
