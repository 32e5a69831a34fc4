import { EventChannel } from '../kit/index.ts'
import type { Journal } from '../store/index.ts'
import { runEvent } from './event-entries.ts'

/** A loop that was held up, and what by. */
export interface BlockedLoop {
  /** The worker whose loop it was; null where rollouts run on the caller's own thread, and where a worker speaks of itself. */
  readonly worker: number | null
  readonly lagMs: number
  /** `name (file:line)`, or the part of the environment, where that can be told. */
  readonly blockedBy?: string
  readonly environment?: string
  /** The component of the reward, if a reward held up the loop. */
  readonly component?: string
}

/** Tells what held up a loop of this process, on the thread that found out. */
export const loopLag = new EventChannel<BlockedLoop>('millrace:loop-lag')

export const loopBlockedEvent = 'loop-blocked'

/** Publishes the event, and keeps it with the run, where `millrace doctor` looks for it. */
export function recordBlocked(journal: Pick<Journal, 'append'>, blocked: BlockedLoop): void {
  loopLag.publish(blocked)
  journal.append(runEvent(loopBlockedEvent, blocked))
}
