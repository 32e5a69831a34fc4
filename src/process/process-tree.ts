import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { MillraceError } from '../errors/index.ts'
import { sleep } from '../kit/index.ts'
import type { ProcessGuard } from './process-guard.ts'

const lookEveryMs = 50
const killLimitMs = 10_000
const hasProc = existsSync('/proc/self')

/** A process and all that it started, also those that left its group: seen below the leader, or known by their tag. */
export class ProcessTree {
  readonly #leader: number
  readonly #tag: string
  readonly #guard: ProcessGuard
  readonly #noted = new Map<number, ProcessId>()

  constructor(leader: number, tag: string, guard: ProcessGuard) {
    this.#leader = leader
    this.#tag = tag
    this.#guard = guard
  }

  note(): void {
    this.#noteBelow(this.#leader)
  }

  signalGroup(name: NodeJS.Signals): void {
    signal(-this.#leader, name)
  }

  async terminate(graceMs: number): Promise<void> {
    const deadline = performance.now() + graceMs
    const left = await this.#find()
    if (left.length === 0) return
    for (const pid of left) signal(pid, 'SIGTERM')
    while (performance.now() < deadline && (await this.#find()).length > 0) await sleep(lookEveryMs)
  }

  /** Kills until nobody is left, since processes may have forked before they were killed. */
  async kill(): Promise<void> {
    const deadline = performance.now() + killLimitMs
    for (;;) {
      this.signalGroup('SIGKILL')
      const noted = [...this.#noted.values()].filter(isAlive).map(({ pid }) => pid)
      const left = [...noted, ...(await this.#find())]
      // Some overwrite their environment, as a browser's processes do: they are found only below a tagged one.
      for (const pid of left) this.#noteBelow(pid)
      for (const pid of left) signal(pid, 'SIGKILL')
      if (left.length === 0) return
      if (performance.now() > deadline) throw stuck(left)
      await sleep(lookEveryMs)
    }
  }

  async #find(): Promise<number[]> {
    if (!hasProc) return signal(-this.#leader, 0) ? [this.#leader] : []
    return await this.#guard.find({ group: this.#leader, tag: this.#tag })
  }

  #noteBelow(pid: number): void {
    for (const descendant of descendantsOf(pid)) this.#noted.set(descendant.pid, descendant)
  }
}

function stuck(pids: readonly number[]): MillraceError {
  return new MillraceError(
    'tool_infra',
    `processes of a program cannot be killed: they hang in the kernel, often in an unreachable file system (${pids.join(', ')})`,
  )
}

interface ProcessId {
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

/** The resident memory of all processes of a group; undefined if the system does not tell (only Linux does). */
export function groupMemoryBytes(group: number): number | undefined {
  const pids = processIds()
  if (pids.length === 0) return undefined
  const members = pids.filter((pid) => statusOf(pid)?.group === group)
  return members.reduce((sum, pid) => {
    const [, kilobytes = '0'] = /^VmRSS:\s+(\d+)/m.exec(readProc(`${pid}/status`)) ?? []
    return sum + Number(kilobytes) * 1024
  }, 0)
}

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
