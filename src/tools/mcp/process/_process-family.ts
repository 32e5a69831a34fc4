import { MillraceError } from '../../../errors/index.ts'
import { sleep } from '../../../kit/index.ts'
import { descendantsOf, isAlive, isGroupAlive, signal, type ProcessId } from './_descendants.ts'
import { markedProcesses } from './_marked-processes.ts'
import type { ProcessGuard } from './process-guard.ts'

const lookEveryMs = 10
const killLimitMs = 10_000

/**
 * A server's process and all that it started, also processes that left its group, as browsers do. Those are known because they
 * were seen below the leader while it lived, or by the mark in their environment.
 */
export class ProcessFamily {
  readonly #leader: number
  readonly #mark: string
  readonly #guard: ProcessGuard
  readonly #noted = new Map<number, ProcessId>()

  constructor(leader: number, mark: string, guard: ProcessGuard) {
    this.#leader = leader
    this.#mark = mark
    this.#guard = guard
  }

  /** Remembers the present descendants. Only before the leader is reaped: after that its number may be another's. */
  note(): void {
    this.#noteBelow(this.#leader)
  }

  signalGroup(name: NodeJS.Signals): void {
    signal(-this.#leader, name)
  }

  /** Asks the members of the group to end, and waits up to `graceMs` for it. */
  async terminate(graceMs: number): Promise<void> {
    const deadline = performance.now() + graceMs
    if (!isGroupAlive(this.#leader)) return
    this.signalGroup('SIGTERM')
    while (isGroupAlive(this.#leader) && performance.now() < deadline) await sleep(lookEveryMs)
  }

  /** Kills until nobody is left, since processes may have forked before they were killed. */
  async kill(): Promise<void> {
    const deadline = performance.now() + killLimitMs
    for (;;) {
      this.signalGroup('SIGKILL')
      const left = [...this.#noted.values(), ...(await markedProcesses(this.#mark, this.#guard))].filter(isAlive)
      // Some overwrite their environment, as a browser's processes do: they are found only below a marked one.
      for (const { pid } of left) this.#noteBelow(pid)
      for (const { pid } of left) signal(pid, 'SIGKILL')
      if (left.length === 0 && !isGroupAlive(this.#leader)) return
      if (performance.now() > deadline) throw stuck([this.#leader, ...left.map(({ pid }) => pid)])
      await sleep(lookEveryMs)
    }
  }

  #noteBelow(pid: number): void {
    for (const descendant of descendantsOf(pid)) this.#noted.set(descendant.pid, descendant)
  }
}

function stuck(pids: readonly number[]): MillraceError {
  return new MillraceError(
    'tool_infra',
    `processes of a tool server do not die: they hang in the kernel, often in a file system that is gone (${pids.join(', ')})`,
  )
}
