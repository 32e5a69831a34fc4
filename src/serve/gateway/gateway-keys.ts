import { randomBytes } from 'node:crypto'
import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { MillraceError } from '../../errors/index.ts'
import { refuseSharedKeys } from '../../gateway/index.ts'
import { requireKeys } from '../_require-keys.ts'

export interface TenantKey {
  readonly tenant: string
  readonly key: string
}

/** Whose sessions they are where nobody said. */
export const defaultTenant = 'default'

const keyFile = 'admin.key'

export function requireAdminKeys(host: string, keys: readonly TenantKey[]): void {
  refuseSharedKeys(keys)
  requireKeys(
    host,
    keys.map(({ tenant, key }) => ({ name: `the key of tenant ${tenant}`, key })),
    'an admin key: set MILLRACE_ADMIN_KEY, or name another variable with --admin-key-env (keys)',
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

/** What to tell whoever starts a gateway with other keys where it once made its own, which then opens nothing. */
export function unusedKeyNotice(folder: string, keys: readonly TenantKey[]): string | undefined {
  const path = join(folder, keyFile)
  if (keys.length === 0 || !existsSync(path)) return undefined
  const ofDefault = keys.filter(({ tenant }) => tenant === defaultTenant)
  if (ofDefault.length === 0) {
    return `the key in ${path} is not taken any more, because other keys are given and none is of tenant ${defaultTenant}, whose sessions nobody can manage now; to keep it, start with MILLRACE_ADMIN_KEY=$(cat ${path})`
  }
  if (ofDefault.some(({ key }) => mayBeKept(path, key))) return undefined
  return `the key in ${path} is not taken: tenant ${defaultTenant} has another one; remove the file, so that nobody tries it`
}

/** Of a file that cannot be read nothing is known, and a gateway that was given its keys starts without it. */
function mayBeKept(path: string, key: string): boolean {
  try {
    return readKept(path) === key
  } catch {
    return true
  }
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
