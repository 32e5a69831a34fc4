import type { EnvironmentCode } from '../env/index.ts'
import { isJsonObject, type Json } from '../schema/index.ts'

/** Names of changed files that are shown. */
const shownFiles = 3

/**
 * What a person should hear who continues a run with other code than it was begun with; undefined if it is the same. Only
 * files that both know are compared: whatever begins to import another file has changed itself.
 */
export function codeChangeNotice(name: string, before: Json | undefined, now: EnvironmentCode): string | undefined {
  if (before === undefined || !isJsonObject(before)) return undefined
  const changed = Object.keys(now).filter((file) => file in before && before[file] !== now[file])
  if (changed.length === 0) return undefined
  const more = changed.length > shownFiles ? ` and ${changed.length - shownFiles} more` : ''
  const files = changed.slice(0, shownFiles).join(', ') + more
  return `warning: ${files} changed since run ${name} began: what has ended is of other code than what runs now; --new starts a run of this code alone`
}
