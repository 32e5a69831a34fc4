import { readdirSync, readFileSync } from 'node:fs'
import type { ServerLog } from '../../fixtures/mcp/misbehaving.ts'

/** What there is of processes and descriptors, from /proc. */

interface LiveProcess {
  readonly pid: number
  readonly command: string
}

/** Whether a process runs. One that has ended but was not collected by its parent does not. */
export function isRunning(pid: number): boolean {
  const stat = read(`/proc/${pid}/stat`)
  const state = stat.charAt(stat.lastIndexOf(')') + 2)
  return state !== '' && state !== 'Z' && state !== 'X'
}

/** All that descends from a process and runs; of this one, if none is given. */
export function liveDescendants(pid = process.pid): LiveProcess[] {
  const pids = [pid]
  for (const parent of pids) pids.push(...childrenOf(parent))
  return pids.slice(1).filter(isRunning).map(describe)
}

function describe(pid: number): LiveProcess {
  return { pid, command: read(`/proc/${pid}/cmdline`).replaceAll('\0', ' ').trim() }
}

/** The guards among them. */
export function liveGuards(pid = process.pid): LiveProcess[] {
  return liveDescendants(pid).filter(({ command }) => command.includes('millrace-guard'))
}

/** How many descriptors a process has open: files, sockets and pipes. */
export function openDescriptors(pid = process.pid): number {
  // The folder itself is open while it is read.
  return readdirSync(`/proc/${pid}/fd`).length - 1
}

function childrenOf(pid: number): number[] {
  let threads: string[]
  try {
    threads = readdirSync(`/proc/${pid}/task`)
  } catch {
    return []
  }
  return threads.flatMap((thread) =>
    read(`/proc/${pid}/task/${thread}/children`).split(' ').filter(Boolean).map(Number),
  )
}

// A process may be gone before it is looked at.
function read(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}

/** What is left of the servers that wrote to a log, and of what they started. */

/** All that the log knows of: servers, and what those with `fork-grandchild` started. */
export function treePids(log: ServerLog): number[] {
  return [
    ...log.entries('start').map(({ pid }) => pid),
    ...log.entries('grandchild').map(({ detail }) => Number(detail)),
  ]
}

/** Those of them that run, and servers that were started but have not yet written anything, below us or below `root`. */
export function survivors(log: ServerLog, root = process.pid): number[] {
  const unlisted = liveDescendants(root).filter(({ command }) => command.includes(log.path))
  return [...new Set([...treePids(log), ...unlisted.map(({ pid }) => pid)])].filter(isRunning)
}

/**
 * A script that starts a process in a session of its own, and below it one without any environment: no group and no mark
 * leads to that one. Its number is in the file `pid` of the folder when the script does what comes `then`.
 */
export function hidden(folder: string, then: string): string {
  const below = `env -i sleep 600 & echo $! >${folder}/new; mv ${folder}/new ${folder}/pid; wait`
  return `setsid sh -c '${below}' & until [ -e ${folder}/pid ]; do sleep 0.05; done; ${then}`
}
