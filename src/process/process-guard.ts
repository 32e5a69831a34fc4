import { randomUUID } from 'node:crypto'
import { mkdir } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { MillraceError } from '../errors/index.ts'
import { GuardShell } from './guard-shell.ts'

// A shell that was killed is replaced at once. One that dies as soon as it starts would do so for ever: after this many early
// deaths the running programs go unwatched, and the next one to start tries again.
const earlyMs = 1_000
const maxEarlyDeaths = 3

/** A process group, and the tag that all descendants of its leader have in their environment. */
export interface TaggedGroup {
  readonly group: number
  readonly tag: string
}

interface Search {
  readonly groups: TaggedGroup[]
  readonly found: Promise<ReadonlyMap<string, number[]>>
}

/** The variable that carries a tag to all descendants of a process. */
export const tagVariable = 'MILLRACE_SERVER'

/**
 * Makes sure that no program outlives us, however we end: a shell is told each process group that starts and ends, and kills
 * those that are left when the pipe from us ends, and removes the folders that were made for them. A pipe ends with the process, and with the thread, that holds it, so each
 * thread has a guard of its own. The shell lives for as long as there is a group to watch, and is replaced if it dies.
 */
export class ProcessGuard {
  static readonly ofThisThread = new ProcessGuard()

  readonly #tagPrefix = randomUUID()
  readonly #groups = new Set<number>()
  #shell: GuardShell | undefined
  #earlyDeaths = 0
  #tags = 0
  #search: Promise<unknown> = Promise.resolve()
  /** The search that begins when that has ended, for all who ask meanwhile: one entry for each program that is ending. */
  #nextSearch: Search | undefined

  /** A value for `tagVariable`, which tells the descendants of one process apart from all other processes. */
  nextTag(): string {
    this.#tags += 1
    return `${this.#tagPrefix}.${this.#tags}.`
  }

  /** A new folder for the program with this tag. Its owner removes it; if we end before that, the shell does. */
  async makeFolder(tag: string): Promise<string> {
    const folder = join(tmpdir(), `millrace-${tag.slice(0, -1)}`)
    await mkdir(folder, { mode: 0o700 })
    return folder
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

  /** Live processes of a group or with its tag. The shell looks, once for all who ask meanwhile. Empty without /proc. */
  async find(wanted: TaggedGroup): Promise<number[]> {
    const next = (this.#nextSearch ??= this.#searchNext())
    next.groups.push(wanted)
    return (await next.found).get(wanted.tag) ?? []
  }

  #searchNext(): Search {
    const groups: TaggedGroup[] = []
    const found = this.#search.then(() => {
      this.#nextSearch = undefined
      return this.#look(groups)
    })
    this.#search = found.catch(() => {})
    return { groups, found }
  }

  async #look(groups: readonly TaggedGroup[]): Promise<ReadonlyMap<string, number[]>> {
    const question = groups.map(({ group, tag }) => `${group}:${tagVariable}=${tag}`).join(' ')
    for (let attempt = 0; attempt <= maxEarlyDeaths; attempt += 1) {
      const shell = (this.#shell ??= this.#startShell())
      const lines = await shell.ask(`?${question}\n`)
      if (lines) {
        await this.#endUnused()
        return foundIn(lines, groups)
      }
      await shell.gone
    }
    throw noShell('so processes that programs left behind cannot be found')
  }

  #startShell(): GuardShell {
    const shell = new GuardShell(`${tagVariable}=${this.#tagPrefix}.`, join(tmpdir(), `millrace-${this.#tagPrefix}.`))
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

/** Reads the shell's answer: lines of /proc/<pid>/stat, and `/proc/<pid>/environ:<variable>=<tag>`. */
function foundIn(lines: readonly string[], groups: readonly TaggedGroup[]): ReadonlyMap<string, number[]> {
  const tags = new Map(groups.map(({ group, tag }) => [String(group), tag]))
  const found = new Map<string, number[]>()
  for (const line of lines) {
    const [, tagged, tag] = /^\/proc\/(\d+)\/environ:\w+=(.*)$/.exec(line) ?? []
    const [, member, group = ''] = /^(\d+) \(.*\) \S \d+ (\d+) /.exec(line) ?? []
    const owner = tag ?? tags.get(group)
    if (owner === undefined) continue
    found.set(owner, [...(found.get(owner) ?? []), Number(tagged ?? member)])
  }
  return found
}

function noShell(consequence: string): MillraceError {
  return new MillraceError(
    'tool_infra',
    `the guard shell, which ends programs after Millrace exits, could not be started, ${consequence}: check that /bin/sh runs`,
  )
}
