import { MillraceError } from '../../errors/index.ts'
import {
  type HeldRollout,
  readSessions,
  type Recording,
  recordingToResume,
  type UsedRetries,
  wholeNodes,
} from '../../rollout/index.ts'
import { outcomes } from '../../schema/index.ts'
import type { RunReader, StoredAttempt, UnfinishedRollout } from '../../store/index.ts'

export interface EarlierLaunch {
  hasEnded(id: string): boolean
  taskDigest(index: number): string | undefined
  unfinished(id: string): UnfinishedWork | undefined
}

/** A rollout without an accepted result, by its latest attempt. Its methods read the journal, and throw if it is damaged. */
export type UnfinishedWork = { readonly attempt: number; used(): UsedRetries | undefined } & (
  | { readonly state: 'cut-off'; recording(): Recording }
  | { readonly state: 'held'; held(): HeldRollout }
  | { readonly state: 'discarded' }
)

/** Holds all unfinished rollouts: at most as many as ran at once, plus those that were taken back to be run again. */
export function earlierLaunch(reader: RunReader, retries: number): EarlierLaunch {
  const unfinished = new Map<string, UnfinishedWork>()
  let takenBackAt: number | undefined
  for (const stored of reader.unfinished()) {
    const { rollout, attempt, state, heldOutcome } = stored
    const used = (): UsedRetries | undefined => {
      // A first attempt, as most are, has used no tries.
      if (attempt === 1 && state !== 'discarded') return undefined
      takenBackAt ??= [...reader.events('retry-failed')].at(-1)?.at ?? 0
      return usedTries(reader.attempts(rollout), { retries, takenBackAt })
    }
    // An attempt that only lacks its score is treated as cut off: it goes on from its journal and is scored.
    if (heldOutcome && outcomes[heldOutcome].rule !== 'rescore') {
      unfinished.set(rollout, { state: 'held', attempt, used, held: () => heldRollout(reader, stored) })
    } else if (state === 'discarded') {
      unfinished.set(rollout, { state, attempt, used })
    } else {
      const recording = (): Recording => recordingToResume(readSessions(reader, rollout, attempt))
      unfinished.set(rollout, { state: 'cut-off', attempt, used, recording })
    }
  }
  return {
    hasEnded: (id) => reader.hasEnded(id),
    taskDigest: (index) => reader.task(index)?.digest,
    unfinished: (id) => unfinished.get(id),
  }
}

function heldRollout(
  reader: RunReader,
  { rollout, attempt, heldRecord, heldLeaf = null }: UnfinishedRollout,
): HeldRollout {
  if (!heldRecord) throw new MillraceError('internal', `${rollout} waits for its group without a record`)
  const messages = wholeNodes(reader, { rollout, attempt, leaf: heldLeaf }).map(({ message }) => message)
  return { record: { ...heldRecord, messages }, leaf: heldLeaf }
}

/** By attempts that ended and did not count. Results that were taken back to be run again start anew. */
function usedTries(
  attempts: readonly StoredAttempt[],
  { retries: allowed, takenBackAt }: { readonly retries: number; readonly takenBackAt: number },
): UsedRetries | undefined {
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
