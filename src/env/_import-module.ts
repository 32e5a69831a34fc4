import { MillraceError } from '../errors/index.ts'
import { raced } from '../kit/index.ts'

const neverCame =
  'an await outside of any function, there or in what it imports, waits for something that never comes; give it a limit of time, or move it into `tasks` or `setup`'

/**
 * Callbacks that give up the imports under way. They share one listener: Node warns of a leak from the eleventh listener on.
 */
const pending = new Set<() => void>()

/**
 * Imports a module, and gives up when nothing is left to wait for. Node silently ends a process that has nothing left to do;
 * if the cause is an `await` outside of any function, that is reported as an error of this module.
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
