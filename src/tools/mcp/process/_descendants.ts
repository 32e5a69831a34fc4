import { readdirSync, readFileSync } from 'node:fs'

/** A process, told apart from a later one with the same number. */
export interface ProcessId {
  readonly pid: number
  readonly startedAt: string
}

interface ProcessStatus {
  readonly isAlive: boolean
  readonly group: number
  readonly startedAt: string
}

// Fields of /proc/<pid>/stat, counted from the one after the name.
const stateField = 0
const groupField = 2
const startField = 19

/** What the kernel says of a process; undefined if the process, or /proc, does not exist. A zombie is not alive. */
function statusOf(pid: number | string): ProcessStatus | undefined {
  const stat = readProc(`${pid}/stat`)
  // The name is in brackets and may contain spaces and brackets itself.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  const state = fields[stateField]
  const startedAt = fields[startField]
  if (!state || startedAt === undefined) return undefined
  return { isAlive: state !== 'Z' && state !== 'X', group: Number(fields[groupField]), startedAt }
}

/** All descendants of a process, parents before their children. Empty where there is no /proc. */
export function descendantsOf(pid: number): ProcessId[] {
  const found: ProcessId[] = []
  const parents = [pid]
  for (const parent of parents) {
    for (const child of childrenOf(parent)) {
      const status = statusOf(child)
      if (!status) continue
      found.push({ pid: child, startedAt: status.startedAt })
      parents.push(child)
    }
  }
  return found
}

export function isAlive({ pid, startedAt }: ProcessId): boolean {
  const status = statusOf(pid)
  return status !== undefined && status.isAlive && status.startedAt === startedAt
}

/** Whether a process group has members, apart from zombies that nobody has collected yet. */
export function isGroupAlive(group: number): boolean {
  if (!signal(-group, 0)) return false
  const pids = processIds()
  if (pids.length === 0) return true
  return pids.some((pid) => {
    const status = statusOf(pid)
    return status !== undefined && status.isAlive && status.group === group
  })
}

export function identify(pid: number): ProcessId | undefined {
  const status = statusOf(pid)
  return status?.isAlive ? { pid, startedAt: status.startedAt } : undefined
}

/** All processes of the machine; none where there is no /proc. */
function processIds(): number[] {
  return entriesOf('/proc')
    .map(Number)
    .filter((pid) => pid > 0)
}

/** Sends a signal to a process, or to a group if negative. Returns whether there was anyone to send it to. */
export function signal(target: number, name: NodeJS.Signals | 0): boolean {
  try {
    process.kill(target, name)
    return true
  } catch {
    return false
  }
}

function childrenOf(pid: number): number[] {
  // Each thread has children of its own.
  return entriesOf(`/proc/${pid}/task`).flatMap((thread) =>
    readProc(`${pid}/task/${thread}/children`).split(' ').filter(Boolean).map(Number),
  )
}

// Processes come and go meanwhile: a file that is gone reads as empty.
function readProc(path: string): string {
  try {
    return readFileSync(`/proc/${path}`, 'latin1')
  } catch {
    return ''
  }
}

function entriesOf(path: string): string[] {
  try {
    return readdirSync(path)
  } catch {
    return []
  }
}
