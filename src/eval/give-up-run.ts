import { rename, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { OpenedRun } from './open-run.ts'

/**
 * Closes a run that could not start. One that was made for it never was: nothing of it is worth keeping, or resuming. One that
 * was complete still is, and one that was drained was not cut off.
 */
export async function giveUpRun({ store, name, folder }: Pick<OpenedRun, 'store' | 'name' | 'folder'>): Promise<void> {
  if (store.isResumed) {
    await using _store = store
    const state = store.wasComplete ? 'complete' : 'unfinished'
    if (!store.failure.aborted) await store.finish(state, { workedMs: 0, ...endBefore(store) })
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

/** Nothing has happened since the sitting before; unless what it had completed was taken back. */
function endBefore({ run, wasComplete }: OpenedRun['store']): { readonly end?: string } {
  const end = run.sittings.at(-2)?.end
  return end === undefined || (end === 'complete' && !wasComplete) ? {} : { end }
}
