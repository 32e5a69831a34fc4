import type { EnvironmentCode } from '../env/index.ts'
import { isJsonObject, type Json } from '../schema/index.ts'
import type { RunFile, RunStore } from '../store/index.ts'
import { asNewRun } from './_as-new-run.ts'

/** How many names of changed files are shown. */
const shownFiles = 3
/** How many names are kept with a run, whose code may change a little every day. */
const maxKeptFiles = 100

/**
 * The files of a run's code that have changed since it began. Only files in both lists are compared: a file that begins to import
 * another one has changed itself.
 */
export function changedFiles(before: Json | undefined, now: EnvironmentCode): readonly string[] {
  if (before === undefined || !isJsonObject(before)) return []
  return Object.keys(now).filter((file) => file in before && before[file] !== now[file])
}

/** A notice for a person who continues a run with changed code; undefined if nothing changed. */
export function codeChangeNotice(name: string, changed: readonly string[]): string | undefined {
  if (changed.length === 0) return undefined
  return `warning: ${namesOf(changed)} changed since run ${name} began: what has ended is of other code than what runs now; ${asNewRun} starts one of this code alone`
}

/** A notice for a person who reads the results of such a run later. */
export function mixedCodeNotice(changed: readonly string[]): string | undefined {
  if (changed.length === 0) return undefined
  return `${namesOf(changed)} changed between sittings of this run: its results are not all of the same code; ${asNewRun} starts one of one code alone`
}

/** The files that any later sitting found changed. */
export function keptChanges({ provenance }: Pick<RunFile, 'provenance'>): readonly string[] {
  const { changedCode } = provenance
  return Array.isArray(changedCode) ? changedCode.filter((file) => typeof file === 'string') : []
}

/**
 * The function that this returns is to be called whenever a rollout starts or a group is scored: from the first call on, the
 * results of a run whose code changed are mixed, and that is kept with the run.
 */
export function keepingChanges(store: Pick<RunStore, 'run' | 'amend'>, changed: readonly string[]): () => undefined {
  let isKept = changed.length === 0
  return () => {
    if (isKept) return undefined
    isKept = true
    const changedCode = [...new Set([...keptChanges(store.run), ...changed])].slice(0, maxKeptFiles)
    store.amend({ provenance: { changedCode } })
    return undefined
  }
}

function namesOf(files: readonly string[]): string {
  const more = files.length > shownFiles ? ` and ${files.length - shownFiles} more` : ''
  return files.slice(0, shownFiles).join(', ') + more
}
