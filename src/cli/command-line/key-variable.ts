import { MillraceError } from '../../errors/index.ts'
import type { Variables } from '../../kit/index.ts'

/** The key in the variable that the flag names, or in the usual variable. */
export function keyIn(
  flag: string,
  named: string | undefined,
  usual: string,
  { env }: { readonly env: Variables },
): string | undefined {
  return named === undefined ? env[usual] || undefined : namedKey(flag, named, env)
}

/** The key in a variable. Throws if it is not set: a missing key must not mean that none is needed, or that another will do. */
export function namedKey(flag: string, name: string, env: Variables): string {
  const key = env[name]
  if (key) return key
  throw new MillraceError('usage', `--${flag} names ${name}, which is not set: set it, or leave out the flag`)
}
