import type { EnvironmentCode } from '../../env/index.ts'
import { isJsonObject, type Json } from '../../schema/index.ts'
import type { RunFile, RunStore } from '../../store/index.ts'

/** How messages name the way to start a new run, as a flag and as an option of `evaluate()`. */
export const newRunOption = "--new (run.resume: 'never')"

const shownFiles = 3
/** How many names are kept with a run, whose code may change a little every day. */
const maxKeptFiles = 100

/** Only files in both lists are compared: a file that begins to import another one has changed itself. */
export function changedFiles(before: Json | undefined, now: EnvironmentCode): readonly string[] {
  if (before === undefined || !isJsonObject(before)) return []
  return Object.keys(now).filter((file) => file in before && before[file] !== now[file])
}

export function codeChangeNotice(name: string, changed: readonly string[]): string | undefined {
  if (changed.length === 0) return undefined
  return `warning: ${namesOf(changed)} changed since run ${name} began: its ended rollouts ran with the former code; ${newRunOption} starts a run with only the current code`
}

export function mixedCodeNotice(changed: readonly string[]): string | undefined {
  if (changed.length === 0) return undefined
  return `${namesOf(changed)} changed between launches of this run: its results mix versions of the code; ${newRunOption} starts a run with only one version`
}

export function recordedCodeChanges({ provenance }: Pick<RunFile, 'provenance'>): readonly string[] {
  const { changedCode } = provenance
  return Array.isArray(changedCode) ? changedCode.filter((file) => typeof file === 'string') : []
}

/** To be called whenever a rollout starts or a group is scored: from then on the results are of mixed code. */
export function recordCodeChanges(store: Pick<RunStore, 'run' | 'amend'>, changed: readonly string[]): () => undefined {
  let isKept = changed.length === 0
  return () => {
    if (isKept) return undefined
    isKept = true
    const changedCode = [...new Set([...recordedCodeChanges(store.run), ...changed])].slice(0, maxKeptFiles)
    store.amend({ provenance: { changedCode } })
    return undefined
  }
}

function namesOf(files: readonly string[]): string {
  const more = files.length > shownFiles ? ` and ${files.length - shownFiles} more` : ''
  return files.slice(0, shownFiles).join(', ') + more
}
