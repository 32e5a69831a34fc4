import type { UsedTries } from '../rollout/index.ts'
import { outcomes } from '../schema/index.ts'
import type { StoredAttempt } from '../store/index.ts'

/**
 * How many of its tries a rollout has used, by its attempts that ended and did not count. An attempt that went down with its
 * worker, or did not repeat its journal, left no end and used none. Results that were taken back to be run again start anew.
 */
export function usedTries(
  attempts: readonly StoredAttempt[],
  { retries: allowed, takenBackAt }: { readonly retries: number; readonly takenBackAt: number },
): UsedTries | undefined {
  let retries = 0
  let replacements = 0
  for (const { discarded, end } of attempts) {
    if (!discarded || !end || end.at <= takenBackAt) continue
    if (outcomes[end.outcome].rule === 'retry' && retries < allowed) retries += 1
    else {
      replacements += 1
      retries = 0
    }
  }
  return retries + replacements === 0 ? undefined : { retries, replacements }
}
