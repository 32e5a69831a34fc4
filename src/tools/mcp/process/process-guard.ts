import { randomUUID } from 'node:crypto'
import { MillraceError } from '../../../errors/index.ts'
import { GuardShell } from './_guard-shell.ts'

// A shell that was killed is replaced at once. One that dies as soon as it starts would do so for ever: after this many early
// deaths the running programs go unwatched, and the next one to start tries again.
const earlyMs = 1_000
const maxEarlyDeaths = 3

/** A look for the processes that servers left behind. */
interface Search {
  readonly marks: Set<string>
  readonly found: Promise<number[]>
}

/** The variable that carries a server's mark to all its descendants. */
export const markVariable = 'MILLRACE_SERVER'

/**
 * Makes sure that no program outlives us, however we end: a shell is told each process group that starts and ends, and kills
 * those that are left when the pipe from us ends. A pipe ends with the process, and with the thread, that holds it, so each
 * thread has a guard of its own. The shell lives for as long as there is a group to watch, and is replaced if it dies.
 */
export class ProcessGuard {
  static readonly ofThisThread = new ProcessGuard()

  readonly #mark = randomUUID()
  readonly #groups = new Set<number>()
  #shell: GuardShell | undefined
  #earlyDeaths = 0
  #marks = 0
  /** The last search that was begun. */
  #search: Promise<unknown> = Promise.resolve()
  /** The search that begins when that has ended, for all who ask meanwhile: one mark for each server that is ending. */
  #nextSearch: Search | undefined

  /** A value for `markVariable`, which tells the descendants of one server apart from all other processes. */
  nextMark(): string {
    this.#marks += 1
    return `${this.#mark}.${this.#marks}.`
  }

  /** Resolves once the group is sure to be killed, whatever becomes of us. */
  async watch(group: number): Promise<void> {
    this.#groups.add(group)
    for (let attempt = 0; attempt <= maxEarlyDeaths; attempt += 1) {
      const shell = (this.#shell ??= this.#startShell())
      if (await shell.tell(`+${group}\n`)) return
      await shell.gone
      // The group may have ended, and been forgotten, meanwhile.
      if (!this.#groups.has(group)) return
    }
    this.#groups.delete(group)
    throw noShell('so no program is started')
  }

  /** Called once nothing of the group is left. If it was the last group, resolves when the shell is gone, too. */
  async forget(group: number): Promise<void> {
    if (!this.#groups.delete(group)) return
    const shell = this.#shell
    void shell?.tell(`-${group}\n`)
    await this.#endUnused()
  }

  async #endUnused(): Promise<void> {
    if (this.#groups.size > 0) return
    const shell = this.#shell
    this.#shell = undefined
    await shell?.end()
  }

  /**
   * The processes that have this mark in their environment, and perhaps others whose servers end at the same time. It takes a look
   * at every process of the machine, so the shell does it, and callers that ask while it looks share the next look.
   */
  marked(mark: string): Promise<number[]> {
    const next = (this.#nextSearch ??= this.#searchNext())
    next.marks.add(`${markVariable}=${mark}`)
    return next.found
  }

  #searchNext(): Search {
    const marks = new Set<string>()
    const found = this.#search.then(() => {
      this.#nextSearch = undefined
      return this.#find([...marks])
    })
    this.#search = found.catch(() => {})
    return { marks, found }
  }

  async #find(marks: readonly string[]): Promise<number[]> {
    for (let attempt = 0; attempt <= maxEarlyDeaths; attempt += 1) {
      const shell = (this.#shell ??= this.#startShell())
      const found = await shell.find(marks)
      if (found) {
        await this.#endUnused()
        return found
      }
      await shell.gone
    }
    throw noShell('so what tool servers left behind cannot be found')
  }

  #startShell(): GuardShell {
    const shell = new GuardShell(`${markVariable}=${this.#mark}.`)
    for (const group of this.#groups) void shell.tell(`+${group}\n`)
    void shell.gone.then(() => this.#replace(shell))
    return shell
  }

  #replace(lost: GuardShell): void {
    if (this.#shell !== lost) return
    this.#earlyDeaths = lost.ageMs < earlyMs ? this.#earlyDeaths + 1 : 0
    const isHopeless = this.#earlyDeaths > maxEarlyDeaths
    this.#shell = this.#groups.size > 0 && !isHopeless ? this.#startShell() : undefined
  }
}

function noShell(consequence: string): MillraceError {
  return new MillraceError(
    'tool_infra',
    `no shell could be started that ends programs when Millrace is gone, ${consequence}: check that /bin/sh runs`,
  )
}
