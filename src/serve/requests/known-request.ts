import { MillraceError } from '../../errors/index.ts'
import type { PlannedRollout } from '../../rollout/index.ts'
import { rolloutId, type Outcome } from '../../schema/index.ts'

export const rolloutStates = ['queued', 'running', 'ended'] as const
export type RolloutState = (typeof rolloutStates)[number]

/** What is remembered of a request: which rollouts are its own, and whether another body with its id is the same. */
export interface KnownRequest {
  readonly id: string
  readonly digest: string
  readonly firstTask: number
  readonly tasks: number
  readonly attempts: number
  /** Its rollouts belong to no connection: nobody's leaving cancels them. Asked for again as detached, it becomes so. */
  isDetached: boolean
  /** Whoever asked for it has left without its results, and may come back: the next launch has to know. */
  isUndelivered?: boolean
  readonly at: number
  readonly outcomes: Partial<Record<Outcome, number>>
}

export interface PendingRollout {
  readonly plan: PlannedRollout
  readonly bytes: number
}

export interface ListedRequest extends Pick<KnownRequest, 'id' | 'at' | 'firstTask' | 'tasks' | 'attempts'> {
  readonly detached: boolean
  /** `queued` until its first rollout starts, `ended` when all its rollouts have ended, `running` in between. */
  readonly state: RolloutState
  readonly states: Readonly<Record<RolloutState, number>>
  readonly outcomes: Readonly<Partial<Record<Outcome, number>>>
}

export interface RequestPage {
  readonly requests: readonly ListedRequest[]
  /** Where the next page starts; absent on the last one. A page may be short, or empty, and still not be the last. */
  readonly cursor?: string
}

/** How many requests one page may look at: a few milliseconds of the loop. */
const maxPassed = 50_000

export function rolloutCount({ tasks, attempts }: KnownRequest): number {
  return tasks * attempts
}

export function* rolloutIds({ firstTask, tasks, attempts }: KnownRequest): Generator<string, void, void> {
  for (let task = firstTask; task < firstTask + tasks; task += 1) {
    for (let sample = 0; sample < attempts; sample += 1) yield rolloutId(task, sample)
  }
}

export function countOutcome({ outcomes }: KnownRequest, outcome: Outcome): void {
  outcomes[outcome] = (outcomes[outcome] ?? 0) + 1
}

export function listedRequest(request: KnownRequest, running: number): ListedRequest {
  const { id, at, firstTask, tasks, attempts, isDetached } = request
  const outcomes = { ...request.outcomes }
  let ended = 0
  for (const count of Object.values(outcomes)) ended += count
  const queued = rolloutCount(request) - running - ended
  const state = queued + running === 0 ? 'ended' : running + ended === 0 ? 'queued' : 'running'
  const states = { queued, running, ended }
  return { id, at, firstTask, tasks, attempts, detached: isDetached, state, states, outcomes }
}

export function listRequests(options: {
  readonly requests: readonly KnownRequest[]
  readonly state: RolloutState | undefined
  readonly cursor: string | undefined
  readonly limit: number
  readonly runningOf: (request: KnownRequest) => number
}): RequestPage {
  const { requests, state, cursor, limit, runningOf } = options
  const before = cursor === undefined ? Infinity : parseCursor(cursor)
  const found: ListedRequest[] = []
  let passed = 0
  let last: number | undefined
  for (const request of requests) {
    if (request.firstTask >= before) continue
    if (found.length === limit || passed === maxPassed) return { requests: found, cursor: String(last) }
    passed += 1
    last = request.firstTask
    const listed = listedRequest(request, runningOf(request))
    if (state === undefined || listed.state === state) found.push(listed)
  }
  return { requests: found }
}

function parseCursor(cursor: string): number {
  if (/^\d+$/.test(cursor)) return Number(cursor)
  throw new MillraceError('usage', `${cursor} is not a cursor of this list; send the cursor of the last page`)
}
