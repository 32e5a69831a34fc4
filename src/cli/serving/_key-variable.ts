import { MillraceError } from '../../errors/index.ts'
import type { CommandIo } from '../process/io.ts'

/** The key in the variable that the flag names, or in the usual one. */
export function keyIn(flag: string, named: string | undefined, usual: string, { env }: CommandIo): string | undefined {
  const key = env[named ?? usual] || undefined
  if (key !== undefined || named === undefined) return key
  // A key that was asked for and is not there must not mean that none is needed, or that another will do.
  throw new MillraceError('usage', `--${flag} names ${named}, which is not set: set it, or leave out the flag`)
}
