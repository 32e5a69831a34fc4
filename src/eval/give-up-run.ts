import { rename, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { OpenedRun } from './open-run.ts'

/**
 * Closes a run that could not start. A new run is removed: nothing in it is worth keeping or resuming. An existing run keeps its
 * state: a complete one stays complete, and one that was drained is not marked as cut off.
 */
export async function giveUpRun({ store, name, folder }: Pick<OpenedRun, 'store' | 'name' | 'folder'>): Promise<void> {
  if (store.absence()) return await store.close()
  if (store.isResumed) {
    await using _store = store
    const state = store.wasComplete ? 'complete' : 'unfinished'
    if (!store.failure.aborted) await store.finish(state, { workedMs: 0, ...endBefore(store) })
    return
  }
  const discarded = join(dirname(folder), `.${name}-${process.pid}`)
  try {
    // The name is free before the lock is.
    await rename(folder, discarded)
  } finally {
    await store.close()
  }
  await rm(discarded, { recursive: true, force: true })
}

/** The end of the sitting before, as nothing has happened since; none if its completed results were taken back. */
function endBefore({ run, wasComplete }: OpenedRun['store']): { readonly end?: string } {
  const end = run.sittings.at(-2)?.end
  return end === undefined || (end === 'complete' && !wasComplete) ? {} : { end }
}
