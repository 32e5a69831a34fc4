import type { EventEntry } from '../store/index.ts'
import type { RolloutJob } from './job.ts'

type Attempt = Pick<RolloutJob, 'id' | 'attempt'>

/** The journal entry for something that happened to an attempt. */
export function attemptEvent({ id: rollout, attempt }: Attempt, name: string, data: object): EventEntry {
  return { kind: 'event', rollout, attempt, name, at: Date.now(), data: JSON.stringify(data) }
}

/** The journal entry for something that happened to the run, whichever rollouts it concerns. */
export function runEvent(name: string, data: object): EventEntry {
  return { kind: 'event', rollout: null, attempt: 0, name, at: Date.now(), data: JSON.stringify(data) }
}

/** The attempt cannot go on, and its rollout starts over. */
export function attemptAbandoned(attempt: Attempt, why: string): EventEntry {
  return attemptEvent(attempt, 'attempt-abandoned', { why })
}
