import { readdirSync, readFileSync } from 'node:fs'
import { memoryMbOf } from '../shared/process-usage.ts'

const everyMs = 50

/** Resident memory of a process and of everything that descends from it, looked at again and again: the most there was together. */
export class TreeMemory implements Disposable {
  readonly #pid: number
  readonly #timer: NodeJS.Timeout
  #peakMb = 0
  #processes = 0

  constructor(pid: number) {
    this.#pid = pid
    this.#timer = setInterval(() => this.#look(), everyMs)
  }

  get peakMb(): number {
    return this.#peakMb
  }

  /** How many processes there were at the peak. */
  get processes(): number {
    return this.#processes
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer)
  }

  #look(): void {
    const tree = descendants(this.#pid)
    const mb = tree.reduce((sum, pid) => sum + residentMb(pid), 0)
    if (mb <= this.#peakMb) return
    this.#peakMb = mb
    this.#processes = tree.length
  }
}

function descendants(root: number): number[] {
  const children = new Map<number, number[]>()
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue
    const parent = parentOf(name)
    const siblings = children.get(parent)
    if (siblings) siblings.push(Number(name))
    else children.set(parent, [Number(name)])
  }
  const found = [root]
  for (const pid of found) found.push(...(children.get(pid) ?? []))
  return found
}

function parentOf(pid: string): number {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    // Behind the name, in brackets: state, parent.
    return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1])
  } catch {
    // It has ended meanwhile.
    return 0
  }
}

function residentMb(pid: number): number {
  try {
    const { now } = memoryMbOf(pid)
    // One that has ended and was not collected yet has none.
    return Number.isNaN(now) ? 0 : now
  } catch {
    return 0
  }
}
