import type { LimitChange } from '../inference/index.ts'
import type { Journal } from '../store/index.ts'
import { runEvent } from './event-entries.ts'

/** Keeps with the run how much could be asked of a model, and when that changed. */
export function recordLimitChange(journal: Pick<Journal, 'append'>, change: LimitChange): void {
  journal.append({ ...runEvent('limit-change', change), at: change.at })
}
