import { randomBytes } from 'node:crypto'
import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { MillraceError } from '../../errors/index.ts'
import { isLoopback } from '../access-key.ts'

export interface TenantKey {
  readonly tenant: string
  readonly key: string
}

/** Whose sessions they are where nobody said. */
export const defaultTenant = 'default'

/** A key that other machines can try at leisure must not be guessed. */
const minKeyCharacters = 16
const keyFile = 'admin.key'

/** What a header carries as it is, and nobody trims: a key from a file often has a line end that no client can send. */
const sendable = /^[!-~]+( +[!-~]+)*$/

/** Keys that clients can send; a door to other machines needs a real lock. */
export function requireAdminKeys(host: string, keys: readonly TenantKey[]): void {
  const unsendable = keys.find(({ key }) => !sendable.test(key))
  if (unsendable) {
    throw new MillraceError(
      'config_invalid',
      `the key of tenant ${unsendable.tenant} begins or ends with white space, or has characters other than plain ASCII, so that no client can send it: look where it comes from`,
    )
  }
  if (isLoopback(host)) return
  if (keys.length === 0) {
    throw new MillraceError(
      'config_invalid',
      `listening on ${host} lets other machines in, so it needs an admin key: set MILLRACE_ADMIN_KEY, or name another variable with --admin-key-env (keys), or listen on 127.0.0.1`,
    )
  }
  const weak = keys.find(({ key }) => key.length < minKeyCharacters)
  if (!weak) return
  throw new MillraceError(
    'config_invalid',
    `listening on ${host} lets other machines in, and the key of tenant ${weak.tenant} has fewer than ${minKeyCharacters} characters: make one with \`openssl rand -base64 32\``,
  )
}

/** The key that an earlier sitting made for this folder, or a new one, readable by its owner alone. */
export function keptAdminKey(folder: string): string {
  const path = join(folder, keyFile)
  const kept = readKept(path)
  if (kept !== undefined) return kept
  const key = `mra-${randomBytes(32).toString('base64url')}`
  try {
    writeFileSync(path, `${key}\n`, { mode: 0o600 })
    // The mode above is only for a file that was not there.
    chmodSync(path, 0o600)
  } catch (error) {
    throw unusable(path, error)
  }
  return key
}

/** What to tell whoever starts a gateway with keys of others where it once made its own, which then opens nothing. */
export function unusedKeyNotice(folder: string, keys: readonly TenantKey[]): string | undefined {
  const path = join(folder, keyFile)
  if (keys.length === 0 || keys.some(({ tenant }) => tenant === defaultTenant) || !existsSync(path)) return undefined
  return `the key in ${path} is not taken any more, because other keys are given and none is of tenant ${defaultTenant}, whose sessions nobody can manage now; to keep it, start with MILLRACE_ADMIN_KEY=$(cat ${path})`
}

function readKept(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8').trim() || undefined
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw unusable(path, error)
  }
}

/** Another user's, for instance, who ran the gateway here before. */
function unusable(path: string, error: unknown): MillraceError {
  const why = error instanceof Error ? error.message : String(error)
  const message = `the admin key cannot be kept in ${path}: ${why}. Make the file yours, or set MILLRACE_ADMIN_KEY`
  return new MillraceError('folder_unwritable', message, { cause: error })
}
