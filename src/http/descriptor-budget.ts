import { readFileSync } from 'node:fs'

/** Descriptors kept for files, the journal, standard streams and whatever else the process has open. */
const reservedDescriptors = 64
/** The limit to assume if the system does not tell: the lowest in common use. */
const assumedLimit = 1024
/** What backends have of the descriptors however many clients there are. */
const leastShare = 1 / 5

/**
 * How many sockets to backends a worker may hold: its part of half the descriptors of the process beyond a reserve, because
 * tools and sandboxes need descriptors too. Past it requests wait for a connection instead of failing with EMFILE. Threads
 * divide the descriptors of their process; a worker process has its own.
 */
export function descriptorBudget(
  options: {
    workers?: number | undefined
    /** Connections that a server of this process is to have room for. They cannot be made to wait, so the budget gives way. */
    clients?: number | undefined
    softLimit?: number
  } = {},
): number {
  const { workers = 1, clients = 0, softLimit = openFileLimit() } = options
  const all = softLimit - reservedDescriptors
  const left = Math.max(all - clients, all * leastShare)
  return Math.max(1, Math.floor(Math.min(all / 2, left) / workers))
}

/** The soft limit on open files. Linux only: elsewhere Node offers no way to ask. */
function openFileLimit(): number {
  try {
    const soft = /^Max open files\s+(\S+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1]
    if (soft === 'unlimited') return 1_048_576
    const limit = Number(soft)
    return Number.isFinite(limit) && limit > 0 ? limit : assumedLimit
  } catch {
    return assumedLimit
  }
}
