import type { LimitChange } from '../inference/index.ts'
import type { Journal } from '../store/index.ts'

/** Keeps with the run how much could be asked of a model, and when that changed. */
export function recordLimitChange(journal: Pick<Journal, 'append'>, change: LimitChange): void {
  journal.append({
    kind: 'event',
    rollout: null,
    attempt: 0,
    name: 'limit-change',
    at: change.at,
    data: JSON.stringify(change),
  })
}
