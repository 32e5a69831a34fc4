import { readdirSync, readFileSync } from 'node:fs'
import { temporaryRuns } from 'millrace/testing'
import { expect } from 'vitest'
import { pooledRun } from './pooled-run.ts'

type Held = Readonly<Record<'threads' | 'descriptors' | 'children', number>>

/** What this process holds that workers could have left behind. On Linux; elsewhere all are 0. */
export function held(): Held {
  if (process.platform !== 'linux') return { threads: 0, descriptors: 0, children: 0 }
  const threads = readdirSync('/proc/self/task')
  const children = threads.flatMap((thread) => childrenOf(thread))
  return { threads: threads.length, descriptors: readdirSync('/proc/self/fd').length, children: children.length }
}

function childrenOf(thread: string): string[] {
  try {
    return readFileSync(`/proc/self/task/${thread}/children`, 'utf8').split(' ').filter(Boolean)
  } catch {
    // It ended since it was listed.
    return []
  }
}

/** Some threads and descriptors are Node's own, and come with the first use. */
export async function warmUp(): Promise<void> {
  for (const kind of ['thread', 'process'] as const) {
    await using runs = await temporaryRuns()
    await pooledRun({ root: runs.root, kind, count: 1, size: 1 })
  }
}

export async function expectNothingLeftSince(before: Held): Promise<void> {
  await expect
    .poll(() => {
      const now = held()
      const names = Object.keys(now) as (keyof Held)[]
      return names.flatMap((name) => (now[name] > before[name] ? [`${now[name]} ${name}, had ${before[name]}`] : []))
    })
    .toEqual([])
}
