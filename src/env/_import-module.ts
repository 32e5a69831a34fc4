import { MillraceError } from '../errors/index.ts'
import { raced } from '../kit/index.ts'

const neverCame =
  'an await outside of any function, there or in what it imports, waits for something that never comes; give it a limit of time, or move it into `tasks` or `setup`'

/** What gives up each import that is under way. They share one listener: Node warns of more than ten as of a leak. */
const pending = new Set<() => void>()

/**
 * Imports a module, and waits for it no longer than there is anything to wait for. Node ends a process in which nothing is
 * left to do, without a word; where that is because of an `await` outside of any function, it is an error of this module.
 */
export async function importModule(url: URL, signal?: AbortSignal): Promise<Readonly<Record<string, unknown>>> {
  const idle = Promise.withResolvers<never>()
  const giveUp = (): void => idle.reject(new MillraceError('env_load_failed', neverCame))
  if (pending.size === 0) process.on('beforeExit', giveUpAll)
  pending.add(giveUp)
  try {
    const loading = Promise.race([import(url.href), idle.promise])
    return await (signal ? raced(loading, signal) : loading)
  } finally {
    pending.delete(giveUp)
    if (pending.size === 0) process.off('beforeExit', giveUpAll)
  }
}

function giveUpAll(): void {
  for (const giveUp of pending) giveUp()
}
