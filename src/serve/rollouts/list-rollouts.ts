import { MillraceError } from '../../errors/index.ts'
import { rolloutId, type Outcome } from '../../schema/index.ts'
import type { RolloutHead } from './reply-schemas.ts'
import type { KnownRequest, RolloutState } from '../requests/known-request.ts'

export interface ListedRollout {
  readonly id: string
  readonly request: string
  readonly state: RolloutState
  readonly head?: RolloutHead
}

export interface ListFilter {
  readonly request?: string
  readonly state?: RolloutState
  readonly outcome?: Outcome
}

export interface RolloutPage {
  readonly rollouts: readonly ListedRollout[]
  /** Where the next page starts; absent on the last one. A page may be short, or empty, and still not be the last. */
  readonly cursor?: string
}

/** What one page may read from disk, so that a rare outcome does not make a page read everything. */
const maxRead = 1_000
/** What one page may pass over in memory: a few milliseconds of the loop. */
const maxPassed = 50_000
const batchSize = 100

export async function listRollouts(options: {
  readonly requests: readonly KnownRequest[]
  readonly filter: ListFilter
  readonly cursor: string | undefined
  readonly limit: number
  readonly stateOf: (id: string) => RolloutState
  readonly heads: (ids: readonly string[]) => Promise<readonly RolloutHead[]>
}): Promise<RolloutPage> {
  const { requests, filter, cursor, limit, stateOf, heads } = options
  const ids = newestFirst(requests, cursor)
  const found: ListedRollout[] = []
  let read = 0
  let passed = 0
  let last: string | undefined
  for (;;) {
    const batch: ListedRollout[] = []
    // No more than could be shown, so that the cursor is always the last one that was looked at.
    const room = Math.min(batchSize, limit - found.length)
    while (batch.length < room && read < maxRead && passed < maxPassed) {
      const next = ids.next()
      if (next.done) {
        found.push(...(await withHeads(batch, filter, heads)))
        return { rollouts: found }
      }
      passed += 1
      last = next.value.id
      const state = stateOf(last)
      const isOut = (filter.state && filter.state !== state) || (filter.outcome && state !== 'ended')
      if (isOut) continue
      batch.push({ id: last, request: next.value.request, state })
      if (state === 'ended') read += 1
    }
    found.push(...(await withHeads(batch, filter, heads)))
    if (found.length === limit || read === maxRead || passed === maxPassed) {
      return { rollouts: found, ...(last && { cursor: last }) }
    }
  }
}

async function withHeads(
  batch: readonly ListedRollout[],
  { outcome }: ListFilter,
  heads: (ids: readonly string[]) => Promise<readonly RolloutHead[]>,
): Promise<ListedRollout[]> {
  const ended = batch.flatMap(({ id, state }) => (state === 'ended' ? [id] : []))
  const byId = new Map(ended.length === 0 ? [] : (await heads(ended)).map((head) => [head.id, head]))
  return batch.flatMap((listed) => {
    const head = byId.get(listed.id)
    if (outcome && head?.outcome !== outcome) return []
    return [head ? { ...listed, head } : listed]
  })
}

function* newestFirst(
  requests: readonly KnownRequest[],
  cursor: string | undefined,
): Generator<{ id: string; request: string }, void, void> {
  const from = cursor === undefined ? undefined : parseCursor(cursor)
  for (const { id, firstTask, tasks, attempts } of requests) {
    if (from && firstTask > from.task) continue
    for (let task = firstTask + tasks - 1; task >= firstTask; task -= 1) {
      if (from && task > from.task) continue
      for (let sample = attempts - 1; sample >= 0; sample -= 1) {
        if (from && task === from.task && sample >= from.sample) continue
        yield { id: rolloutId(task, sample), request: id }
      }
    }
  }
}

function parseCursor(cursor: string): { task: number; sample: number } {
  const [, task, sample] = /^(\d+)-(\d+)$/.exec(cursor) ?? []
  if (task === undefined)
    throw new MillraceError('usage', `${cursor} is not a cursor of this list; send the cursor of the last page`)
  return { task: Number(task), sample: Number(sample) }
}
