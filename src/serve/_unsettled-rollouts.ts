import { MillraceError } from '../errors/index.ts'
import type { ActiveRequest } from './_active-request.ts'
import type { ServeBounds } from './serve-bounds.ts'

/** A rollout that was asked for and has no durable result yet. */
export interface UnsettledRollout {
  readonly id: string
  readonly request: ActiveRequest
  /** Of its task, as JSON. */
  readonly bytes: number
  /** `accepting`: its request is on the way to the disk. */
  state: 'accepting' | 'queued' | 'running'
  cancelled?: MillraceError
}

/** All of them, with the sums that the bounds are about. */
export class UnsettledRollouts {
  readonly #rollouts = new Map<string, UnsettledRollout>()
  readonly #bounds: ServeBounds
  #running = 0
  #waitingBytes = 0

  constructor(bounds: ServeBounds) {
    this.#bounds = bounds
  }

  get running(): number {
    return this.#running
  }

  /** Accepted, or about to be, and not started. */
  get waiting(): number {
    return this.#rollouts.size - this.#running
  }

  /**
   * Fails with `overloaded` if so much more cannot wait now, with `usage` if it never could. What an earlier sitting
   * accepted was let in before.
   */
  requireRoom(rollouts: number, bytes: number): void {
    const { waiting } = this
    const { maxQueuedRollouts, maxQueuedBytes } = this.#bounds
    if (rollouts > maxQueuedRollouts) throw neverFits(rollouts, 'rollouts', maxQueuedRollouts)
    if (bytes > maxQueuedBytes) throw neverFits(bytes, 'bytes of tasks', maxQueuedBytes)
    if (waiting + rollouts <= maxQueuedRollouts && this.#waitingBytes + bytes <= maxQueuedBytes) return
    throw new MillraceError(
      'overloaded',
      `${waiting} rollouts wait already, and at most ${maxQueuedRollouts} may; try again later, or in smaller parts`,
      { data: { queued: waiting, maxQueued: maxQueuedRollouts } },
    )
  }

  get(id: string): UnsettledRollout | undefined {
    return this.#rollouts.get(id)
  }

  has(id: string): boolean {
    return this.#rollouts.has(id)
  }

  add(rollout: UnsettledRollout): void {
    this.#rollouts.set(rollout.id, rollout)
    this.#waitingBytes += rollout.bytes
  }

  /** It is given to a worker. It may have been before: an attempt can start over. */
  start(rollout: UnsettledRollout): void {
    if (rollout.state === 'running') return
    rollout.state = 'running'
    this.#countRunning(rollout, 1)
    this.#waitingBytes -= rollout.bytes
  }

  /** It waits again, for another sitting. */
  giveBack(rollout: UnsettledRollout): void {
    if (rollout.state !== 'running') return
    rollout.state = 'queued'
    this.#countRunning(rollout, -1)
    this.#waitingBytes += rollout.bytes
  }

  remove(id: string): UnsettledRollout | undefined {
    const rollout = this.#rollouts.get(id)
    if (!rollout) return undefined
    this.#rollouts.delete(id)
    if (rollout.state === 'running') this.#countRunning(rollout, -1)
    else this.#waitingBytes -= rollout.bytes
    return rollout
  }

  #countRunning({ request }: UnsettledRollout, change: 1 | -1): void {
    this.#running += change
    request.running += change
  }
}

function neverFits(count: number, what: string, max: number): MillraceError {
  return new MillraceError(
    'usage',
    `it makes ${count} ${what}, and at most ${max} may wait at one time; send it in parts`,
  )
}
