import type { EnvironmentCode } from '../env/index.ts'
import { isJsonObject, type Json } from '../schema/index.ts'
import type { RunFile, RunStore } from '../store/index.ts'
import { asNewRun } from './_as-new-run.ts'

/** Names of changed files that are shown. */
const shownFiles = 3
/** Names that are kept with a run, whose code may change a little every day. */
const maxKeptFiles = 100

/**
 * The files of a run's code that are not what they were when it began. Only files that both know are compared: whatever
 * begins to import another file has changed itself.
 */
export function changedFiles(before: Json | undefined, now: EnvironmentCode): readonly string[] {
  if (before === undefined || !isJsonObject(before)) return []
  return Object.keys(now).filter((file) => file in before && before[file] !== now[file])
}

/** What a person should hear who continues a run with other code than it was begun with; undefined if it is the same. */
export function codeChangeNotice(name: string, changed: readonly string[]): string | undefined {
  if (changed.length === 0) return undefined
  return `warning: ${namesOf(changed)} changed since run ${name} began: what has ended is of other code than what runs now; ${asNewRun} starts one of this code alone`
}

/** The same for whoever reads the results later. */
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
 * To be called whenever a rollout starts or a group is scored: from the first one on, the results of a run whose code changed
 * are mixed, and that is kept with it.
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
