import { closeSync, fstatSync, openSync, readlinkSync, statSync, type Stats } from 'node:fs'
import { join } from 'node:path'
import { MillraceError } from '../../errors/index.ts'
import { runFiles } from './run-folder.ts'

/** How often a process that works on a run looks whether the run is still there. */
export const presenceCheckMs = 1_000

/** How long to wait for the end of a deletion, so that the error says what is left afterwards. */
const deletionMs = 250

/** Notices that an open run was deleted, moved or replaced: writing to files without a name does not fail. */
export class RunPresence implements Disposable {
  readonly #folder: string
  readonly #database: string
  readonly #folderStats: Stats
  readonly #databaseStats: Stats
  /** Tells whether the folder still exists when its path leads elsewhere. */
  #descriptor: number | undefined
  #absence: MillraceError | undefined

  constructor(folder: string) {
    this.#folder = folder
    this.#database = join(folder, runFiles.database)
    this.#databaseStats = statSync(this.#database)
    this.#descriptor = openSync(folder, 'r')
    this.#folderStats = fstatSync(this.#descriptor)
  }

  /** What has happened to the run, if it is not where it was opened. Costs one `stat` while all is well. */
  absence(): MillraceError | undefined {
    if (!this.#absence && !isSame(statsOf(this.#database), this.#databaseStats)) {
      this.#absence = new MillraceError('run_gone', this.#describe(), { data: { folder: this.#folder } })
    }
    return this.#absence
  }

  [Symbol.dispose](): void {
    if (this.#descriptor !== undefined) closeSync(this.#descriptor)
    this.#descriptor = undefined
  }

  #describe(): string {
    if (this.#descriptor === undefined) throw new MillraceError('internal', 'the run is no longer watched')
    const folder = this.#folder
    // A folder is deleted file by file, and this may be in the middle of it. Blocks its thread, which has nothing else to do.
    if (isSame(statsOf(folder), this.#folderStats)) {
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, deletionMs)
    }
    const next = 'put it back, then run the same again'
    const links = linksOf(this.#descriptor)
    if (links === undefined) {
      return `${folder} was deleted or moved during the run; if you have the folder, ${next}`
    }
    if (links === 0) return `${folder} was deleted during the run: no results are kept`
    if (isSame(statsOf(folder), this.#folderStats)) return this.#describeFiles()
    const movedTo = pathOf(this.#descriptor)
    if (movedTo !== undefined && isSame(statsOf(movedTo), this.#folderStats)) {
      return `${folder} was moved to ${movedTo} during the run; everything reported until then is there: ${next}`
    }
    return `${folder} was moved away, or replaced by another folder, during the run; if you have the folder, ${next}`
  }

  /** The database was deleted or replaced, and the folder was not. */
  #describeFiles(): string {
    const { database, lines } = runFiles
    const what = statsOf(this.#database) ? 'replaced' : 'deleted'
    const kept = statsOf(join(this.#folder, lines))
      ? `${lines} still has the results up to then, but the run cannot be continued`
      : 'no results are kept'
    return `${database} in ${this.#folder} was ${what} during the run: ${kept}; restore ${database} from a copy, or start another run with --run <name> (run.name)`
  }
}

/** undefined only if nothing is there. Any other failure is not about deletion, and the next write reports it. */
function statsOf(path: string): Stats | 'unknown' | undefined {
  try {
    return statSync(path, { throwIfNoEntry: false })
  } catch {
    return 'unknown'
  }
}

function isSame(found: Stats | 'unknown' | undefined, known: Stats): boolean {
  if (found === undefined) return false
  return found === 'unknown' || (found.ino === known.ino && found.dev === known.dev)
}

/** How many names an open folder has by now: none once it is deleted. Network file systems may not know it then (ESTALE). */
function linksOf(descriptor: number): number | undefined {
  try {
    return fstatSync(descriptor).nlink
  } catch {
    return undefined
  }
}

/** The path that an open folder has by now. Known on Linux only. */
function pathOf(descriptor: number): string | undefined {
  try {
    return readlinkSync(`/proc/self/fd/${descriptor}`)
  } catch {
    return undefined
  }
}
