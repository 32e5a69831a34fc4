import { rename, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { RunStore } from '../store/index.ts'

/**
 * Closes a run that could not start. One that was made for it never was: nothing of it is worth keeping, or resuming. One that
 * was complete still is.
 */
export async function giveUpRun({
  store,
  info,
}: {
  readonly store: RunStore
  readonly info: { readonly name: string; readonly folder: string }
}): Promise<void> {
  if (store.isResumed) {
    await using _store = store
    if (store.wasComplete && !store.failure.aborted) await store.finish('complete')
    return
  }
  const discarded = join(dirname(info.folder), `.${info.name}-${process.pid}`)
  try {
    // Its name is free before its lock is.
    await rename(info.folder, discarded)
  } finally {
    await store.close()
  }
  await rm(discarded, { recursive: true, force: true })
}
