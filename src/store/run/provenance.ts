import { execFile } from 'node:child_process'
import { packageVersion } from '../../kit/index.ts'

/** Which code made a run, and on what. */
export interface Provenance {
  /** The repository of the working directory; null outside of one, or without git. */
  readonly git: { readonly commit: string | null; readonly dirty: boolean } | null
  readonly millrace: string
  readonly node: string
  readonly platform: string
}

const gitTimeoutMs = 2_000

export async function provenance(cwd = process.cwd()): Promise<Provenance> {
  return {
    git: await gitState(cwd),
    millrace: packageVersion(),
    node: process.version,
    platform: `${process.platform}-${process.arch}`,
  }
}

function gitState(cwd: string): Promise<Provenance['git']> {
  const { promise, resolve } = Promise.withResolvers<Provenance['git']>()
  execFile(
    'git',
    ['status', '--porcelain=v2', '--branch', '--untracked-files=no'],
    // Without optional locks git leaves the index alone, so a commit made at the same time does not fail.
    { cwd, timeout: gitTimeoutMs, killSignal: 'SIGKILL', env: { ...process.env, GIT_OPTIONAL_LOCKS: '0' } },
    (_error, stdout) => resolve(parseStatus(stdout)),
  )
  return promise
}

/** A listing that was too long for the buffer is cut off, but the commit comes first. */
function parseStatus(stdout: string): Provenance['git'] {
  const commit = /^# branch\.oid (.+)$/m.exec(stdout)?.[1]
  if (commit === undefined) return null
  const dirty = stdout.split('\n').some((line) => line !== '' && !line.startsWith('#'))
  return { commit: commit === '(initial)' ? null : commit, dirty }
}
