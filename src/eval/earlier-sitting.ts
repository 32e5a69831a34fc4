import { MillraceError, type WireError } from '../errors/index.ts'
import {
  agentOutcomeOf,
  keptChildrenOf,
  readJudgeCalls,
  readServerCalls,
  type HeldRollout,
  type PaidVerdict,
  type RecordedWork,
  type UsedTries,
} from '../rollout/index.ts'
import { outcomes, type MessageNode } from '../schema/index.ts'
import { missingMessage, type BareRecord, type RunReader, type UnfinishedRollout } from '../store/index.ts'
import { usedTries } from './_used-tries.ts'
import { recordedEnd } from './recorded-end.ts'

/** What an earlier sitting of a run left behind, as the planning of the rest needs it. */
export interface EarlierSitting {
  hasEnded(id: string): boolean
  taskDigest(index: number): string | undefined
  unfinished(id: string): UnfinishedWork | undefined
}

/** A rollout without an accepted result, by its latest attempt. Its methods read the journal, and throw if it is damaged. */
export type UnfinishedWork = { readonly attempt: number; used(): UsedTries | undefined } & (
  | { readonly state: 'cut-off'; recorded(): RecordedWork }
  | { readonly state: 'held'; held(): HeldRollout }
  | { readonly state: 'discarded' }
)

/** Holds all unfinished rollouts: at most as many as ran at once, plus those that were taken back to be run again. */
export function earlierSitting(reader: RunReader, retries: number): EarlierSitting {
  const unfinished = new Map<string, UnfinishedWork>()
  let takenBackAt: number | undefined
  for (const stored of reader.unfinished()) {
    const { rollout, attempt, state, heldOutcome } = stored
    const used = (): UsedTries | undefined => {
      // A first attempt, as most are, has used no tries.
      if (attempt === 1 && state !== 'discarded') return undefined
      takenBackAt ??= lastTakenBack(reader)
      return usedTries(reader.attempts(rollout), { retries, takenBackAt })
    }
    // An attempt that only lacks its score is treated as cut off: it goes on from its journal and is scored.
    if (heldOutcome && outcomes[heldOutcome].rule !== 'rescore') {
      unfinished.set(rollout, { state: 'held', attempt, used, held: () => heldRollout(reader, stored) })
    } else if (state === 'discarded') {
      unfinished.set(rollout, { state, attempt, used })
    } else {
      const recorded = (): RecordedWork => recordedWork(reader, rollout, attempt)
      unfinished.set(rollout, { state: 'cut-off', attempt, used, recorded })
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

/** When results were last taken back to be run again; 0 if they never were. */
function lastTakenBack(reader: RunReader): number {
  let last = 0
  for (const { at } of reader.events('retry-failed')) last = at
  return last
}

/** The nodes and judge calls of the attempt and all its children, and the records of the children. */
function recordedWork(reader: RunReader, rollout: string, attempt: number): RecordedWork {
  const nodes: Record<string, readonly MessageNode[]> = {}
  const judgeCalls: Record<string, readonly PaidVerdict[]> = {}
  const ended: BareRecord[] = []
  const ends: Record<string, WireError> = {}
  const noteEnd = (id: string, record: BareRecord): void => {
    // An agent that the infrastructure or a stop ended may go on; one that used up its budget may not.
    const end = outcomes[agentOutcomeOf(record)].truncated ? recordedEnd(record) : undefined
    if (end) ends[id] = end
  }
  const read = (id: string, leaf?: number | null): void => {
    nodes[id] = wholeNodes(reader, { rollout: id, attempt, leaf })
    const calls = readJudgeCalls(reader, id, attempt)
    if (calls.length > 0) judgeCalls[id] = calls.map(({ model, usage, cost }) => ({ model, usage, cost }))
    for (const child of reader.children(id)) {
      if (child.attempt !== attempt) continue
      if (child.end) {
        ended.push(child.end.record)
        noteEnd(child.rollout, child.end.record)
      }
      read(child.rollout, child.end?.leaf)
    }
  }
  const end = reader.attempts(rollout).find((each) => each.attempt === attempt)?.end
  read(rollout, end?.leaf)
  if (end) noteEnd(rollout, end.record)
  const reported = end && { metrics: end.record.metrics, notes: end.record.info ?? {} }
  const serverCalls = readServerCalls(reader, rollout, attempt).length
  return {
    nodes,
    ends,
    children: keptChildrenOf(rollout, ended),
    judgeCalls,
    ...(serverCalls > 0 && { serverCalls }),
    ...(reported && { reported }),
  }
}

/** The nodes of an attempt. An ended attempt has a leaf, which says how many there must be. */
function wholeNodes(
  reader: RunReader,
  { rollout, attempt, leaf = null }: { rollout: string; attempt: number; leaf?: number | null | undefined },
): MessageNode[] {
  const nodes = reader.nodes(rollout, attempt)
  if (leaf !== null && leaf >= nodes.length) throw missingMessage(rollout, leaf)
  return nodes
}
