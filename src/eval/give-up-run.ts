import { rename, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { OpenedRun } from './open-run.ts'

/**
 * Closes a run that could not start. One that was made for it never was: nothing of it is worth keeping, or resuming. One that
 * was complete still is.
 */
export async function giveUpRun({ store, name, folder }: Pick<OpenedRun, 'store' | 'name' | 'folder'>): Promise<void> {
  if (store.isResumed) {
    await using _store = store
    if (!store.failure.aborted) await store.finish(store.wasComplete ? 'complete' : 'unfinished', { workedMs: 0 })
    return
  }
  const discarded = join(dirname(folder), `.${name}-${process.pid}`)
  try {
    // Its name is free before its lock is.
    await rename(folder, discarded)
  } finally {
    await store.close()
  }
  await rm(discarded, { recursive: true, force: true })
}
