import { MillraceError } from '../errors/index.ts'
import { raced } from '../kit/index.ts'

const neverCame =
  'an await outside of any function, there or in what it imports, waits for something that never comes; give it a limit of time, or move it into `tasks` or `setup`'

/**
 * Imports a module, and waits for it no longer than there is anything to wait for. Node ends a process in which nothing is
 * left to do, without a word; where that is because of an `await` outside of any function, it is an error of this module.
 */
export async function importModule(url: URL, signal?: AbortSignal): Promise<Readonly<Record<string, unknown>>> {
  const idle = Promise.withResolvers<never>()
  const onIdle = (): void => idle.reject(new MillraceError('env_load_failed', neverCame))
  process.once('beforeExit', onIdle)
  try {
    const loading = Promise.race([import(url.href), idle.promise])
    return await (signal ? raced(loading, signal) : loading)
  } finally {
    process.off('beforeExit', onIdle)
  }
}
