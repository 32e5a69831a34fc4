import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** A folder for runs that is gone when the scope ends. */
export async function temporaryRuns(): Promise<AsyncDisposable & { readonly root: string }> {
  const root = await mkdtemp(join(tmpdir(), 'millrace-runs-'))
  return { root, [Symbol.asyncDispose]: () => rm(root, { recursive: true, force: true }) }
}
